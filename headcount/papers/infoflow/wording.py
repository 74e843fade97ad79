"""The steps of a plan in words, made from their fields: where, whom it attends to, by which score, what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.numerals import counted

if TYPE_CHECKING:
    from headcount.papers.infoflow.prediction import Step

ORDINAL = {1: "largest", 2: "second largest", 3: "third largest"}
PLACES = {"tokens": "every token", "cls": "the class token", "both": "every token and the class token"}


def place(step: Step) -> str:
    """Who attends."""
    return _range(step.number) if step.at == "positions" else PLACES[step.at]


def attends(step: Step) -> str:
    """Whom a step attends to."""
    match step.act:
        case "shift":
            return f"to {_neighbour(step.offset)}"
        case "read":
            return f"reads position{'s' if len(step.positions) > 1 else ''} {_listed(step.positions)}"
        case "partner":
            return "each token t to its best partner s"
        case "choose":
            return "each token t to its best partner s in the look-up that it chooses"
        case "mask":
            return "to the largest token not yet masked"
        case "jump":
            return "to where the links known so far lead, to read as many again"
        case "hold":
            return f"every token to {_winner(step)}"
        case "ride":
            return f"what every token holds comes along: {step.number} number{'s' if step.number > 1 else ''}"
        case "route":
            return "position i asks for the token with the largest i-th score"
        case "fetch":
            return f"reads {_range(step.number)}"
        case "gate":
            each = (step.heads[1] - step.heads[0] + 1) // step.number
            return f"each to the largest token among the positions of one colour, {each} heads per look-up"
        case "gather":
            if step.mode == "global":
                return "gathers the whole sequence"
            named = f"position{'s' if len(step.positions) > 1 else ''} {_listed(step.positions)}"
            return f"gathers {named if step.positions else 'tokens by their positions'}"
        case _:
            return f"to {_winner(step)}"


def score(step: Step) -> str:
    """By what it chooses."""
    match step.act:
        case "shift" | "read" | "fetch":
            return "position alone"
        case "partner" | "choose":
            return "joint in (x_t, x_s)"
        case "jump":
            return "the place of a finding, or a match with it"
        case "ride":
            return "whatever the head is used for"
        case "route":
            return f"the position chooses one of {step.number} keys (query e_i)"
        case "gate":
            return "the token's own score, gated by position"
        case "gather":
            return "the same for all" if step.mode == "global" else "position alone"
        case _:
            if step.after:
                return f"joint with what {_names(step)} found"
            return "the pair's score" if step.order == 2 else "the token's own score"


def knows(step: Step) -> str:
    """What is known afterwards."""
    match step.act:
        case "shift":
            return "every token knows what its neighbour is"
        case "read":
            return "it is known where later scores need it"
        case "partner":
            return "every token knows its partner and their score"
        case "choose":
            return "of each look-up, tokens know their partners and scores"
        case "mask":
            return "the winner sees itself and steps back"
        case "jump":
            return "every token knows twice as many links, and one more"
        case "hold":
            return "every token holds the same finding"
        case "ride":
            return "the class token knows what the tokens held"
        case "route":
            return "position i holds look-up i"
        case "fetch":
            return f"the class token holds all {step.number} findings"
        case "gate":
            return f"the {_ordinal(step.rank)} is the largest, over paintings, of the least maximum"
        case "gather":
            return f"the class token holds {counted(step.gathered, 'number')} in {counted(step.channel, 'dimension')}"
        case _:
            if step.after:
                return "the match is known"
            if step.order == 2:
                return "the class token knows the best pair"
            return f"the class token knows the {_ordinal(step.rank)}"


def _winner(step: Step) -> str:
    if step.after:
        return f"the token that matches {_names(step)}"
    if step.order == 2:
        return "the token whose pair scores highest"
    return "the largest left unmasked" if step.rank > 1 else "the token with the largest score"


def _names(step: Step) -> str:
    return " and ".join(step.after)


def _ordinal(rank: int) -> str:
    return ORDINAL.get(rank, f"{rank}-th largest")


def _neighbour(offset: int) -> str:
    if abs(offset) == 1:
        return "the previous token" if offset > 0 else "the next token"
    return f"the token {abs(offset)} {'before' if offset > 0 else 'after'}"


def _range(number: int) -> str:
    return f"positions 0..{number - 1}" if number > 1 else "position 0"


def _listed(places: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, places[:6]))
    return shown if len(places) <= 6 else f"{shown}, ..."
