"""A trained model as one file that runs without palpate: raw observations in, positions in the action's unit out.

The module is not named after its function: importing `palpate.export` would put the module where the function is.
"""

import copy
import importlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from palpate import __version__
from palpate.disk import require_place, write_whole
from palpate.extras import demand
from palpate.methods.base import Model
from palpate.representation import Frame, Representation

SUFFIX = {"onnx": ".onnx", "torch": ".pt2"}
FORMAT_VERSION = 1
METADATA = "palpate"  # name of the file's description, as JSON
TOLERANCE = 1e-4  # largest difference between model and file, in units of the actions' root mean square
CHECKED_BATCHES = (1, 2, 7)
OPSET = 18  # what torch's exporter is written in: anything newer is converted from it, and fewer runtimes read it
UNITS = {
    "agent": "that of the actions",
    "object": "that of the actions",
    "covariance": "that of the actions, squared",
    "orientation": "radians, modulo pi",
    "confidence": "probability that the object is visible",
    "heading": "radians, from the first axis of the plane to the left",
    "rotation": "rotation matrix, its columns are the agent's axes",
}

Answers = dict[str, Tensor]


class Exported(NamedTuple):
    """The written file, and its difference from the model."""

    path: Path
    bytes: int
    difference: float  # the largest, in units of the actions' root mean square; of angles in radians
    rows: int  # observations that were compared
    metadata: dict[str, Any]


def export(
    model: Representation,
    path: str | os.PathLike[str],
    *,
    format: Literal["onnx", "torch"] = "onnx",
    observation: Any = None,
    overwrite: bool = False,
) -> Exported:
    """Write `model` to one file, normalisation and alignment included, that takes batches of any size.

    `onnx` is for onnxruntime and other ONNX runtimes, `torch` is an ExportedProgram for `torch.export.load`. The file
    is compared with the model on the CPU, on random observations and on `observation`. If they differ, nothing is
    written.
    """
    if format not in SUFFIX:
        raise ValueError(f"format is {format!r}; allowed is {' or '.join(map(repr, SUFFIX))}")
    if not (model.model.places_object and model.model.tells_apart):
        raise ValueError(
            f"method is {model.config.method!r}, which gives no positions in the action's unit; export a model of "
            "method 'interaction' or 'supervised'"
        )
    path = Path(path)
    require_place(path, overwrite)
    if format == "onnx":
        for name in ("onnx", "onnxscript", "onnxruntime"):
            demand(name, library=name, extra="export", needs=f"exporting to onnx needs {name}")
    source = Representation(_plain_copy(model.model), model.facts)
    batches = [*_random(source.model), *([] if observation is None else [source.canonical(observation)])]
    with torch.no_grad(), _quiet():
        program = _trace(source)
        metadata = _describe(source, program)
        content = (_onnx if format == "onnx" else _torch)(program, metadata)
        answer = (_run_onnx if format == "onnx" else _run_torch)(content)
        # Unlike Python's max, torch's propagates nan.
        difference = float(torch.stack([_difference(source, answer, o) for o in batches]).max())
    if not difference <= TOLERANCE:  # also for nan
        raise ValueError(
            f"the {format} file would differ from the model by {difference:.2g} of the actions' root mean square, "
            f"allowed is {TOLERANCE:g}; nothing was written. Are the weights finite? Otherwise try the other format"
        )
    write_whole(path, content)
    return Exported(path, len(content), difference, sum(map(len, batches)), metadata)


class _Deployed(nn.Module):
    """The computation of the file."""

    origin: Tensor
    offset: Tensor

    def __init__(self, source: Representation) -> None:
        super().__init__()
        self.model = source.model
        for name, part in source.frame._asdict().items():
            self.register_buffer(name, part)

    def forward(self, observation: Tensor) -> Answers:
        return Frame(self.origin, self.offset).placed(self.model, self.model.encode(observation)).known()


def _trace(source: Representation) -> torch.export.ExportedProgram:
    """The program, without weights that positions do not depend on, such as phi_cont's, and this machine's paths."""
    example = next(_random(source.model, (3,)))  # a batch of one would be taken for a constant
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(_Deployed(source).eval(), (example,), dynamic_shapes={"observation": {0: batch}})
    graph, signature, used = program.graph, program.graph_signature, []
    for node, spec in zip(graph.find_nodes(op="placeholder"), signature.input_specs, strict=True):
        if node.users or spec.target is None:
            used.append(spec)
        else:
            graph.erase_node(node)
            program.state_dict.pop(spec.target, None)
    signature.input_specs = used
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)
    program.graph_module.recompile()
    return program


def _torch(program: torch.export.ExportedProgram, metadata: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={METADATA: json.dumps(metadata)})
    return file.getvalue()


def _run_torch(content: bytes) -> Callable[[Tensor], Answers]:
    return torch.export.load(io.BytesIO(content)).module()


def _onnx(program: torch.export.ExportedProgram, metadata: dict[str, Any]) -> bytes:
    exported = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        opset_version=OPSET,
        input_names=["observation"],
        output_names=list(metadata["outputs"]),
        external_data=False,
    )
    assert exported is not None
    file = exported.model_proto
    for part in (file.graph, *file.graph.node, *file.graph.initializer, *file.graph.value_info):
        del part.metadata_props[:]  # the exporter's notes
    for value in (*file.graph.input, *file.graph.output, *file.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = "batch"
    del file.metadata_props[:]
    file.metadata_props.add(key=METADATA, value=json.dumps(metadata))
    return file.SerializeToString()


def _run_onnx(content: bytes) -> Callable[[Tensor], Answers]:
    session = importlib.import_module("onnxruntime").InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(o: Tensor) -> Answers:
        return dict(zip(names, map(torch.from_numpy, session.run(None, {"observation": o.numpy()})), strict=True))

    return run


def _difference(source: Representation, answer: Callable[[Tensor], Answers], o: Tensor) -> Tensor:
    """The largest difference over a batch: lengths in units, angles in radians and weighted by the elongation."""
    wanted, found, unit = source.encode(o).known(), answer(o), source.model.inputs.unit
    if {name: value.shape for name, value in wanted.items()} != {name: value.shape for name, value in found.items()}:
        return torch.tensor(torch.inf)
    wanted, found = ({name.removesuffix("s"): value for name, value in answers.items()} for answers in (wanted, found))
    gaps = {name: (value - found[name]).abs() for name, value in wanted.items()}
    one = torch.ones(())
    angles = dict.fromkeys(("orientation", "confidence", "heading", "rotation"), one)
    weights = {"agent": 1 / unit, "object": 1 / unit, **angles}
    if "covariance" in wanted:  # a semi-axis is the root of an eigenvalue
        size = wanted["covariance"].diagonal(dim1=-2, dim2=-1).sum(-1).sqrt()  # [b] or [b, k]
        weights["covariance"] = 1 / (size * unit)[..., None, None]
    if "orientation" in wanted:
        gaps["orientation"] = torch.minimum(gaps["orientation"], torch.pi - gaps["orientation"])
        if "covariance" in wanted:  # the angle of a disc is decided by rounding
            short, long = torch.linalg.eigvalsh(wanted["covariance"]).clamp(min=0).sqrt().unbind(-1)
            weights["orientation"] = 1 - short / long
    if "heading" in wanted:
        gaps["heading"] = torch.minimum(gaps["heading"], 2 * torch.pi - gaps["heading"])
    # Far from the origin neighbouring float32 are far apart, and model and file may round to either.
    rounding = {name: torch.finfo(torch.float32).eps * value.abs() for name, value in wanted.items()}
    largest = [((gap - rounding[name]).clamp(min=0) * weights[name]).max() for name, gap in gaps.items()]
    return torch.stack(largest).max()


def _random(model: Model, sizes: tuple[int, ...] = CHECKED_BATCHES) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    for b in sizes:
        shape = (b, *model.config.observation_shape)
        if model.config.observation_dtype == "uint8":
            yield torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        else:
            yield model.inputs.mean + model.inputs.spread * torch.randn(shape, generator=generator)


def _describe(source: Representation, program: torch.export.ExportedProgram) -> dict[str, Any]:
    """The file's description."""
    config, outputs = source.config, program.module()(next(_random(source.model, (1,))))
    picture = len(config.observation_shape) == 3
    return {
        "format_version": FORMAT_VERSION,
        "palpate_version": __version__,
        "method": config.method,
        "encoder": config.encoder,
        "objective": asdict(config.objective),
        "input": {
            "name": "observation",
            "dtype": config.observation_dtype,
            "shape": ["batch", *config.observation_shape],
            "layout": "channels first, the views of one moment stacked on the channels" if picture else "vectors",
        },
        "outputs": {
            name: {"dtype": "float32", "shape": ["batch", *value.shape[1:]], "unit": UNITS[name.removesuffix("s")]}
            for name, value in outputs.items()
        },
        "action_rms": float(source.model.inputs.unit),
        "origin": source.frame.origin.tolist(),
        "object_offset": source.frame.offset.tolist(),
    }


def _plain_copy(model: Model) -> Model:
    """A copy on the CPU with contiguous weights, as files hold them."""
    plain = copy.deepcopy(model).cpu().eval()
    for weight in (*plain.parameters(), *plain.buffers()):
        weight.data = weight.data.contiguous()
    return plain


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' warnings about deprecations and optional libraries."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)
