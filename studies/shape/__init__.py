"""How much does a shape matter at equal parameters? Twelve of them, three rates, five seeds, one pass over two texts.

python -m studies.shape prepare --data DIR --out out/shape/text.npz
python -m studies.shape train --text out/shape/text.npz --device cuda --seconds 420 --out out/shape
python -m studies.shape page --grid out/shape/shape_grid.json --settled out/shape/shape_settled.json
"""
