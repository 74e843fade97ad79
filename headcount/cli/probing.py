"""`headcount probe`: look into a network, trained here or kept in a file, or ask a language model a letter task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.infoflow import Embedding, Layers, Length, TaskName, With, fields_of
from headcount.cli.printing import MODEL_HELP, AsJson, Out, conclude, emit_json, out_file, say, show_table, tell_written
from headcount.numerals import counted

if TYPE_CHECKING:
    from headcount.nets import Transformer


def register(app: typer.Typer) -> None:
    @app.command("probe")
    def probe(
        task: TaskName,
        layers: Layers = "",
        length: Length = 16,
        fields: With = None,
        positions: Annotated[int, typer.Option(help="Position features (0: none).")] = 0,
        width: Annotated[int, typer.Option(help="Hidden size of the feed-forwards.")] = 32,
        embedding: Embedding = "feed-forward",
        epochs: Annotated[int, typer.Option(help="Passes over 8000 samples.")] = 100,
        seed: Annotated[int, typer.Option(help="Seed of weights and samples.")] = 0,
        net: Annotated[
            Path | None, typer.Option(help="Probe this file instead of training.", show_default=False)
        ] = None,
        save: Annotated[Path | None, typer.Option(help="Keep the trained network here.", show_default=False)] = None,
        model: Annotated[
            str, typer.Option(help=f"Ask a language model UF, UB, UR, ... {MODEL_HELP}", show_default=False)
        ] = "",
        samples: Annotated[int, typer.Option(help="With --model: strings to ask for.")] = 32,
        shots: Annotated[int, typer.Option(help="With --model: solved strings before each.")] = 4,
        as_json: AsJson = False,
        out: Out = None,
    ) -> None:
        """Say where a network attends and what its states contain.

        The network is trained here, or kept in a file. With --model a language model is asked a letter task (UF, UB,
        NF, NB copy; UR, UL, NRFirst, .. retrieve) in context.
        """
        if model:
            _ask(task, model, length, (samples, shots), as_json, out)
            return
        from headcount.nets import Architecture, load_net, save_net
        from headcount.papers.infoflow import asked_forms, class_attention, contained
        from headcount.tasks import PairMax
        from headcount.tasks.catalogue import named, typical

        target = named(task, length, **typical(task, fields_of(fields or [])))
        if net is None and not layers:
            raise ValueError("give --layers to train a network, or --net FILE to probe one that is kept")
        if net is not None:
            looked_at, nmse = load_net(net), None
            if looked_at.token_dim != target.token_dim:
                raise ValueError(
                    f"{net} takes tokens of dimension {looked_at.token_dim}, the task has {target.token_dim}"
                )
        else:
            arch = Architecture.parse(layers, width=width, positions=positions, embedding=embedding)
            looked_at, nmse = _trained(target, arch, epochs, seed)
        if save is not None:
            save_net(looked_at, save)
        deep = looked_at.arch.depth > 1
        found: dict[str, Any] = {
            "task": task,
            "layers": looked_at.arch.name,
            "nmse": nmse,
            "attends": [row.as_row() for row in class_attention(looked_at, target)],
            "contains": [row.as_row() for row in contained(looked_at, target)] if deep else [],
        }
        if isinstance(target, PairMax) and looked_at.arch.embedding == "linear":
            found["asks"] = [row.as_row() for row in asked_forms(looked_at, target)]
        files = [] if save is None else [save]
        files += [] if out is None else [out_file(out, "probe.json", json.dumps(found, indent=2) + "\n")]
        if as_json:
            emit_json(found)
        else:
            _print(found, files)


def _ask(code: str, name: str, length: int, sizes: tuple[int, int], as_json: bool, out: Path | None) -> None:
    """Ask the model, print the share of answers that are right, and keep it where that is asked for."""
    from headcount.nets.pretrained.packaged import model_and_tokenizer
    from headcount.papers.born.in_context import ContextSetting, asked_in_context, context_task, reader_of

    context_task(code)
    setting = ContextSetting(*sizes)
    reads, alphabet = reader_of(*model_and_tokenizer(name))
    found = {"model": name} | asked_in_context(reads, alphabet, code, length, setting)
    files = [] if out is None else [out_file(out, "probe.json", json.dumps(found, indent=2) + "\n")]
    if as_json:
        emit_json(found)
        return
    show_table([found], ("code", "length", "strings", "letters", "samples", "shots"))
    tell_written(files)
    conclude(
        f"{name} is right on {found['strings']:.2f} of the strings of {code} at length {length}, and on "
        f"{found['letters']:.2f} of their letters"
    )


def _trained(task: Any, arch: Any, epochs: int, seed: int) -> tuple[Transformer, float]:
    from headcount.training import Member, Recipe, train

    recipe = Recipe(epochs=epochs, evaluations=min(epochs, 50))
    outcome = train([Member(task, arch, seed=seed, data_seed=seed)], recipe)
    return outcome.net(0), outcome.rows[0]["nmse"]


def _print(found: dict[str, Any], files: list[Path]) -> None:
    trained = "" if found["nmse"] is None else f", trained to NMSE {found['nmse']:.2e}"
    say(f"{found['task']} by {found['layers']}{trained}")
    say("\nWhere the class token attends in the last layer (positions by weight)")
    for row in found["attends"]:
        order = sorted(range(len(row["mean"])), key=lambda i: -row["mean"][i])[:4]
        shown = ", ".join(f"{i}: {row['mean'][i]:.3f} +- {row['spread'][i]:.3f}" for i in order)
        say(f"  head {row['head']}  {shown}")
    if found["contains"]:
        say("\nWhat the states after layer 1 linearly contain (ratio to an untrained network)")
        show_table(found["contains"], ("head", "rank", "gap", "gap_untrained", "ratio"))
    if "asks" in found:
        say("\nWhich look-up each head of layer 1 serves (its form is sharpness times A, or turned its transpose)")
        show_table(found["asks"], ("head", "look_up", "turned", "cosine", "sharpness"))
    tell_written(files)
    conclude(_answer(found))


def _answer(found: dict[str, Any]) -> str:
    """How sharply the heads look: the weight of the position each attends to most, averaged over inputs."""
    peaks = [max(row["mean"]) for row in found["attends"]]
    even = 1 / len(found["attends"][0]["mean"])
    heads = counted(len(peaks), "head")
    if max(peaks) < 2 * even:
        return f"no position is favoured by any of the {heads}; where they look depends on the input, not the place"
    sharp = sum(peak >= 2 * even for peak in peaks)
    return (
        f"{sharp} of {heads} favour a position: the largest mean weight is {max(peaks):.2f}, even would be {even:.2f}"
    )
