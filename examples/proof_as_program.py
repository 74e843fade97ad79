"""A theorem builds a network, a trial fails to break it, then breaks a weakened one, and says why.

python -m examples.proof_as_program
"""

import copy
from dataclasses import replace

import headcount as hc
from headcount.papers.head_count.networks.dissect import dissect

# Two wells in the unit square: the first is looked for in the first quarter of 64 positions, the other everywhere.
task = hc.tasks.Wells(centres=[[0.0, 0.0], [0.9, 0.6]], length=64, windows=(range(16), range(64)))

built = hc.build(task, eps=1e-2)
print(built.certificate)
print(built.check())

# The same network with the gate as the paper prints it, 1 instead of 2: every second row of the encoder's output.
net = copy.deepcopy(built.net)
outer = net.get_submodule("encoder.maps.1")
outer.get_parameter("weight")[1::2] /= 2
outer.get_parameter("bias")[1::2] /= 2
broken = replace(built, net=net)
check = broken.check()
print(f"\nWith a gate of 1, {check}")
for row in dissect(broken, check.worst):
    verdict = "holds" if row["holds"] else "is why"
    print(f"  {row['term']:<24} promised {row['promised']:.2e}  measured {row['measured']:.2e}  {verdict}")
