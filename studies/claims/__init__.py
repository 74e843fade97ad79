"""Sixty claims of the calculus, thirty of each verdict, drawn at random and held against training.

    python -m studies.claims --jobs 16 --seconds 200 --out OUT      (goes on from OUT/claims_trained.json)
    python -m studies.claims --small --out OUT                      (half a minute: the same lines, little training)
    python -m studies.claims --again --jobs 8 --out OUT             (claims near the border again: longer, then wider)
    python -m studies.claims.page OUT/claims_trained.json           (keeps the rows in docs/data and writes the page)

The rule, fixed before anything was trained:

- A case is a random target of one to three look-ups (`look_ups`) in 6 to 12 Gaussian tokens of dimension 2 or 3, each
  look-up of variance one, and a random shape. The first 30 cases that `predict` calls cheap by the calculus, and the
  first 30 that it calls costly by the calculus, of `random.Random(SEED)`: none is left out by what it is.
- Every case has a reference: the least of a ladder of shapes with positions that was predicted cheap by looking up, and
  not by a state that holds the sequence, and a head more in every layer. A case has as many parameters as its reference
  (the reference has 48 hidden units), and 48 hidden units or more.
- Four seeds, two rates in turn, STEPS steps of 128 fresh-ordered samples out of 65,536.
- "Solved" is `studies.infoflow.solved.solved`: an NMSE within 5 times the reference's, or below 3e-5, and not above
  0.3; by best (best of four against best of four) and by median.
- A cheap claim is confirmed where its shape solves the task, a costly one where it does not.
- What the calculus says of a case today may differ from what it said when the case was drawn: both are kept.
- Again (fixed before it was run): every case that was not confirmed, and every case whose NMSE is between 2.5 and 10
  times its reference's, by best or by median, is trained for four times the steps ("longer"), and then so with four
  times the hidden units in both shapes ("wider"); judged by the same rule.
- A case whose reference does not come below an NMSE of 0.01 by best says nothing about its shape: it is counted as
  unlearned, named, and no other case takes its place.
"""
