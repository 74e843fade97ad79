"""How much does a shape matter at equal parameters? Twelve of them, three rates, five seeds, one pass over two texts.

python -m studies.shape prepare --data DIR --out out/shape/text.npz
python -m studies.shape train --text out/shape/text.npz --out out/shape --device cuda --seconds 430
cp out/shape/shape_*.json docs/data/
make docs                       # the grid enters the evidence; docs/shape.html, its picture, docs/how-many-heads.md
"""
