"""beartype as the shape checker: an int is an acceptable float, as the type checkers agree."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
