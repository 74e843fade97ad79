"""`headcount probe`: look into a network, trained here or kept in a file, or ask a language model a letter task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.options import MODEL_HELP, Embedding, Layers, Length, Out, TaskOrFile, With, fields_of
from headcount.cli.printing import Listing, Printout
from headcount.files import write_json

if TYPE_CHECKING:
    from headcount.nets import Transformer
    from headcount.papers.infoflow import NetworkProbes

ASKS = "\nWhich look-up each head of layer 1 serves (its form is sharpness times A, or turned its transpose)"
ANSWERS = ("code", "length", "strings", "letters", "samples", "shots")


@dataclass(frozen=True)
class ProbeOptions:
    """What `headcount probe` takes."""

    task: TaskOrFile
    layers: Layers = ""
    length: Length = 16
    fields: With = None
    positions: Annotated[int, typer.Option(help="Position features (0: none).")] = 0
    width: Annotated[int, typer.Option(help="Hidden size of the feed-forwards.")] = 32
    embedding: Embedding = "feed-forward"
    epochs: Annotated[int, typer.Option(help="Passes over 8000 samples.")] = 100
    seed: Annotated[int, typer.Option(help="Seed of weights and samples.")] = 0
    net: Annotated[Path | None, typer.Option(help="Probe this file instead of training.", show_default=False)] = None
    save: Annotated[Path | None, typer.Option(help="Keep the trained network here.", show_default=False)] = None
    model: Annotated[
        str, typer.Option(help=f"Ask a language model UF, UB, UR, ... {MODEL_HELP}", show_default=False)
    ] = ""
    samples: Annotated[int, typer.Option(help="With --model: strings to ask for.")] = 32
    shots: Annotated[int, typer.Option(help="With --model: solved strings before each.")] = 4
    out: Out = None


def probe(options: ProbeOptions) -> Printout:
    """Say where a network attends and what its states contain.

    The network is trained here, or kept in a file. With --model a language model is asked a letter task (UF, UB, NF, NB
    copy; UR, UL, NRFirst, .. retrieve) in context.
    """
    if options.model:
        return _in_context(options.task, options.model, options.length, options.samples, options.shots, options.out)
    from headcount.nets import Architecture, save_net
    from headcount.papers.infoflow import probe_network
    from headcount.tasks.catalogue import named, typical

    target = named(options.task, options.length, **typical(options.task, fields_of(options.fields or [])))
    if options.net is None and not options.layers:
        raise ValueError("give --layers to train a network, or --net FILE to probe one that is kept")
    if options.net is not None:
        looked_at, nmse, scale = _loaded_net(options.net, target), None, None
    else:
        kind = {"positions": options.positions, "embedding": options.embedding}
        arch = Architecture.parse(options.layers, width=options.width, **kind)
        looked_at, nmse, scale = _trained(target, arch, options.epochs, options.seed)
    if options.save is not None:
        save_net(looked_at, options.save, scale)
    probes = probe_network(looked_at, target, name=options.task, nmse=nmse)
    files = [] if options.save is None else [options.save]
    files += [] if options.out is None else probes.files(options.out)
    return Printout(probes.to_json(), _lines(probes), probes.sentence, files)


def _in_context(code: str, name: str, length: int, samples: int, shots: int, out: Path | None) -> Printout:
    from headcount.nets.pretrained.packaged import model_and_tokenizer
    from headcount.papers.born.in_context import ContextSetting, asked_in_context, context_task, reader_of

    context_task(code)  # what is unknown is said before anything large is loaded
    setting = ContextSetting(samples, shots)
    reads, alphabet = reader_of(*model_and_tokenizer(name))
    facts = {"model": name} | asked_in_context(reads, alphabet, code, length, setting)
    right = f"{name} is right on {facts['strings']:.2f} of the strings of {code} at length {length}"
    so = f"{right}, and on {facts['letters']:.2f} of their letters"
    files = [] if out is None else [write_json(out / "probe.json", facts)]
    return Printout(facts, [Listing([facts], ANSWERS)], so, files)


def _loaded_net(file: Path, task: Any) -> Transformer:
    from headcount.nets import load_net

    net = load_net(file)
    if net.token_dim != task.token_dim:
        raise ValueError(f"{file} takes tokens of dimension {net.token_dim}, the task has {task.token_dim}")
    return net


def _trained(task: Any, arch: Any, epochs: int, seed: int) -> tuple[Transformer, float, tuple[float, float]]:
    """The network, its NMSE, and the mean and spread of its target."""
    from headcount.training import Member, Recipe, train
    from headcount.training.data import target_scale

    recipe = Recipe(epochs=epochs, evaluations=min(epochs, 50))
    outcome = train([Member(task, arch, seed=seed, data_seed=seed)], recipe)
    return outcome.net(0), outcome.rows[0]["nmse"], target_scale(task, seed, recipe.samples)


def _lines(probes: NetworkProbes) -> list[str | Listing]:
    trained = "" if probes.nmse is None else f", trained to NMSE {probes.nmse:.2e}"
    lines: list[str | Listing] = [f"{probes.task} by {probes.layers}{trained}"]
    lines.append("\nWhere the class token attends in the last layer (positions by weight)")
    lines += [f"  {row}" for row in probes.attends]
    if probes.contains:
        lines.append("\nWhat the states after layer 1 linearly contain (ratio to an untrained network)")
        rows = [row.as_row() for row in probes.contains]
        lines.append(Listing(rows, ("head", "rank", "gap", "gap_untrained", "ratio")))
    if probes.asks is not None:
        lines.append(ASKS)
        rows = [row.as_row() for row in probes.asks]
        lines.append(Listing(rows, ("head", "look_up", "turned", "cosine", "sharpness")))
    return lines
