"""A speech filter made quantisation-proof by depth.

    python examples/speech_filter.py [ARCHIVE] [--out FOLDER]

The filter is the linear prediction filter (order 16) of a vowel, run four times with a little more damping each
time, as codecs do to bring out formants: order 64. Its poles come in families 2% apart, so one diagonal layer
needs large residues that nearly cancel, and few bits destroy it. Nested chains hold each family in one chain.

ARCHIVE is an .npz of spoken digits (keys audio, offsets, digit, speaker, take, rate), for instance made from the
Free Spoken Digit Dataset (Jackson et al., CC BY-SA 4.0); without it a made-up vowel takes its place.
The picture in docs/images is that of a spoken digit; its rows are in docs/data/speech_filter.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from headcount.papers.ssm.pictures import bits_picture
from headcount.papers.ssm.quantise import FixedPoint, bits_rows, hardened
from headcount.papers.ssm.speech import load_digit, made_up_vowel, prediction_filter, sharpened

BITS = (6, 8, 10, 12, 14, 16, 18, 20)
REACH = 2.0  # a format with one bit before the point, as second-order sections use


def main() -> None:
    parser = argparse.ArgumentParser(description="A speech filter made quantisation-proof by depth.")
    parser.add_argument("archive", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/speech_filter"))
    options = parser.parse_args()

    wave = load_digit(options.archive, digit=0)[0] if options.archive else made_up_vowel()
    shallow = sharpened(prediction_filter(wave, order=16), times=4)
    deep = hardened(shallow, FixedPoint(bits=12, reach=REACH))
    print(f"order {shallow.modes}: largest entry {shallow.largest_entry:.3g} in one layer,")
    print(f"{deep.largest_entry:.3g} at depth {deep.depth} and width {deep.width}\n")

    forms = {"one layer": shallow, f"depth {deep.depth}": deep}
    panels = {
        "A range for each form": bits_rows(shallow, forms, BITS),
        f"One range for all: entries below {REACH:g}": bits_rows(shallow, forms, BITS, reach=REACH),
    }
    for name, rows in panels.items():
        print(name)
        for form in dict.fromkeys(row["form"] for row in rows):
            gaps = "  ".join(f"{row['gap']:8.1e}" for row in rows if row["form"] == form)
            print(f"  {form:22} {gaps}")
    what = "a spoken digit" if options.archive else "a made-up vowel"
    title = f"Formant filter of {what}, order {shallow.modes}: what few bits cost"
    options.out.mkdir(parents=True, exist_ok=True)
    picture, rows = options.out / "speech_filter.svg", options.out / "speech_filter.json"
    picture.write_text(bits_picture(panels, title).standalone())
    rows.write_text(json.dumps({"title": title, "panels": panels}, indent=1) + "\n")
    print(f"\nbits {', '.join(map(str, BITS))}; wrote {picture} and {rows}")


if __name__ == "__main__":
    main()
