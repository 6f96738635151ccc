"""A trained model, for users."""

import copy
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from palpate.config import ModelConfig
from palpate.data.arrays import as_actions
from palpate.disk import alone, named
from palpate.methods.base import Encoding, Model
from palpate.methods.store import load_model, save_model
from palpate.runlog import RUN
from palpate.spelling import did_you_mean

ENCODE_ROWS, ENCODE_BYTES = 256, 256 * 1024**2
KNOWN = ("observation", "agent", "object", "agent_centre")  # what `align` uses
TELLING_ROWS = 10  # fewest known positions that can contradict the frame


class Frame(NamedTuple):
    """From a model's frame to the user's."""

    origin: Tensor  # motion of the model's group, applied to agent and objects
    offset: Tensor  # [n], added to the objects' positions; contacts cannot determine it

    def placed(self, model: Model, encoding: Encoding) -> Encoding:
        """The encoding in the user's frame; a latent stays as it is."""
        placed = encoding.moved(model.group, self.origin, places_object=model.places_object)
        return (
            placed._replace(objects=model.group.shifted(placed.objects, self.offset)) if model.places_object else placed
        )

    def to(self, device: torch.device | str) -> "Frame":
        return Frame(*(x.to(device) for x in self))


@final
class Representation:
    """A trained model: observations in any layout go in, positions in the action's unit come out."""

    def __init__(self, model: Model, facts: Mapping[str, Any], device: torch.device | str = "cpu") -> None:
        self.model = model.to(device).eval()
        self.facts = dict(facts)
        self._device = torch.device(device)
        group = model.group
        origin, offset = facts.get("origin") or group.identity().tolist(), facts.get("object_offset") or [0.0] * group.n
        self.frame = Frame(torch.tensor(origin), torch.tensor(offset))  # set by `align`

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @torch.no_grad()
    def encode(self, observation: Any) -> Encoding:
        """Positions of agent and object for a batch of observations; numpy in, numpy out.

        Two baselines give no positions. The object of a VAE is a latent. The two keypoints of a Transporter lie in the
        unit square of the picture and have no order. `palpate.evaluate` can score both.
        """
        parts = [self.model.encode(o) for o in self._batches(observation)]
        whole = Encoding(*map(_joined, zip(*parts, strict=True)))  # type: ignore[arg-type]
        return self._like(observation, self.frame.placed(self.model, whole))

    @torch.no_grad()
    def border(self, observation: Any) -> Any:
        """The boundary of the learned body: a closed line [b, c, 2] around the object's position, or [b, k, c, 2] for k
        objects; the last point joins the first. The agent's reference point on it just touches the object. For a
        Gaussian, its ellipse. `encode(o).object[:, None] + border(o)` is the line in the common frame; an offset of the
        object, given to `align`, does not move it. None outside the plane, and for models without a body."""
        lines = [self.model.border(o) for o in self._batches(observation)]
        frame, group = self.frame.to(self._device), self.model.group
        placed = [None if line is None else group.turned(line, frame.origin) - frame.offset for line in lines]
        return self._answer(observation, placed)

    @torch.no_grad()
    def contact(self, observation: Any, action: Any, next_observation: Any) -> Any:
        """Probability of contact, [b] or [b, k] for k objects, from the observations before and after; None for a model
        without contacts."""
        _require_equal_lengths(observation=observation, action=action, next_observation=next_observation)
        triples = zip(self._batches(observation), self._actions(action), self._batches(next_observation), strict=True)
        return self._answer(observation, [self.model.contact(*triple) for triple in triples])

    @torch.no_grad()
    def would_touch(self, observation: Any, action: Any) -> Any:
        """Probability of contact, [b] or [b, k], when the agent moves by `action`; by geometry, before the move.

        It is 1/2 for a path that just reaches the boundary. Sensors on the agent: as if half of all paths were in
        contact; if contacts are rarer, more of the predicted ones are false positives. None for a model without this
        geometry.
        """
        _require_equal_lengths(observation=observation, action=action)
        pairs = zip(self._batches(observation), self._actions(action), strict=True)
        return self._answer(observation, [self.model.would_touch(o, a) for o, a in pairs])

    @torch.no_grad()
    def distances(self, observation: Any, next_observation: Any) -> Any:
        """Squared distances, [b] or [b, k], by which contacts are recognised: in W, or between positions, in units of
        the actions' root mean square, if those decide. None for a model without contacts."""
        _require_equal_lengths(observation=observation, next_observation=next_observation)
        pairs = zip(self._batches(observation), self._batches(next_observation), strict=True)
        return self._answer(observation, [self.model.scene_distance(o, o_next) for o, o_next in pairs])

    def align(self, known: Mapping[str, Any]) -> "Representation":
        """A new representation in your frame; this one does not change: `model = model.align(...)`.

        `known` holds `observation` and, for the same rows, true positions of the `agent`, the `object` or both. The
        agent's positions fit the frame: one motion of the model's group, a translation. If both are given, the mean
        remaining difference becomes the object's constant offset, which contacts cannot determine. If only the object
        is given, its positions fit the frame, and the agent's positions have that offset. The object's fit skips rows
        in which it is hidden. Instead of the object, `agent_centre` [n] can give the offset: the centre of the touching
        part, relative to the agent's reference point. This suffices if the object's position is its shape's centre.

        The body and the predicted contacts do not move. A new alignment replaces an earlier one.
        """
        self._require_known(known)
        group, o = self.model.group, known["observation"]
        encoding = Representation(self.model, {}, self._device).encode(o)  # in the frame of the model
        pairs = {}
        for name in ("agent", "object"):
            if name in known:
                places = _vectors(name, known[name], len(o), group.n).double()
                estimates = torch.as_tensor(getattr(encoding, name)).double()
                if not estimates.isfinite().all():
                    raise ValueError("observation has values that are not finite; repair or drop those rows")
                seen = _visible(encoding) if name == "object" else torch.ones(len(o), dtype=torch.bool)
                pairs[name] = estimates[seen], places[seen]
        origin = group.frame(*pairs.get("agent", pairs.get("object")))  # type: ignore[misc]
        left = {name: group.difference(at, group.moved(found, origin)) for name, (found, at) in pairs.items()}
        offset = torch.zeros(group.n)
        if "agent_centre" in known:
            offset = _vectors("agent_centre", known["agent_centre"], None, group.n)
        elif len(pairs) == 2:
            offset = left["object"].mean(0)
            left["object"] = left["object"] - offset
        for name, vector in (("frame", origin), ("object", offset)):
            if not vector.float().isfinite().all():
                raise ValueError(
                    f"the {name} would move by {vector.tolist()}; it must be finite in float32: use another unit"
                )
        for name, (_, at) in pairs.items():
            self._warn_of_disagreement(name, left[name], group.difference(at, at.mean(0)))
        facts = self.facts | {"origin": origin.tolist(), "object_offset": offset.tolist()}
        return Representation(self.model, facts, self._device)

    def _require_known(self, known: Mapping[str, Any]) -> None:
        """Refuse what `align` cannot use."""
        for name in known:
            if name not in KNOWN:
                meant = did_you_mean(str(name), KNOWN, f"allowed are {', '.join(KNOWN)}")
                raise ValueError(f"known has {name!r}{meant}")
        if "observation" not in known or not {"agent", "object"} & set(known):
            raise ValueError(
                f"the known positions are {sorted(known)}; align needs 'observation' and 'agent' or 'object'"
            )
        if "object" in known and (count := self.config.objects) > 1:
            raise ValueError(f"this model has {count} objects, which have no order; align it by the agent")
        if "agent_centre" in known and ("agent" not in known or "object" in known):
            raise ValueError(
                "agent_centre is given; align then needs 'agent', and no 'object', which also gives the offset"
            )
        if {"object", "agent_centre"} & set(known) and not self.model.places_object:
            raise ValueError(
                f"this model is {self.config.method!r}, whose object is not a position; align it by the agent"
            )
        if not self.model.tells_apart:
            raise ValueError(f"this model is {self.config.method!r}, whose points have no order; align another model")

    def _warn_of_disagreement(self, name: str, left: Tensor, around: Tensor) -> None:
        """Warn if known positions differ from the fitted ones by `left` [b, n], much compared to their spread."""
        off, spread = (float(x.square().sum(-1).mean().sqrt()) for x in (left, around))
        if len(left) >= TELLING_ROWS and off > max(spread, float(self.model.inputs.unit)) / 2:
            warnings.warn(
                f"after the best motion, the rows disagree about the {name}: its estimates are still {off:.3g} from "
                f"the known positions, whose spread is {spread:.3g}. The known frame may be rotated, mirrored or "
                "scaled relative to that of the actions, or nothing was learned",
                stacklevel=3,
            )

    def to(self, device: torch.device | str) -> "Representation":
        """A copy on another device."""
        return Representation(copy.deepcopy(self.model), self.facts, device)

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write `config.json` and `model.safetensors`, which `palpate.load` reads; not into the folder of a run."""
        folder = Path(folder)
        if (folder / RUN).exists():
            raise FileExistsError(
                f"{folder} is the folder of a run, whose files would no longer belong together; choose another folder"
            )
        with named(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with alone(folder, inside=True):
            save_model(self.model, folder, self.facts, overwrite=overwrite)

    def __repr__(self) -> str:
        config = self.config
        return (
            f"Representation({config.method}, {config.encoder}, observations {config.observation_shape} "
            f"{config.observation_dtype}, {config.n} dimensions{self._verdict()})"
        )

    def _verdict(self) -> str:
        """The label-free verdict, for a reader."""
        quality = self.facts.get("quality")
        return f", {quality['verdict']}" if quality else ""

    def _answer(self, observation: Any, parts: Sequence[Tensor | None]) -> Any:
        """The joined parts, without the object axis if there is one object."""
        answer = _joined(parts)
        if answer is None:
            return None
        return self._like(observation, answer[:, 0] if answer.shape[1] == 1 else answer)

    def _actions(self, action: Any) -> Iterator[Tensor]:
        given = as_actions(action)
        if given.shape[1:] == self.config.action_shape:  # sub-steps may also be one after the other
            given = np.reshape(given, (len(given), -1))
        actions = _vectors("action", given, len(action), self.model.group.action_width)
        self.model.inputs.require_finite(actions)
        return self._blocks(actions)

    def _batches(self, observation: Any) -> Iterator[Tensor]:
        return self._blocks(self.canonical(observation))

    def _blocks(self, rows: Tensor) -> Iterator[Tensor]:
        """Blocks on the device, for bounded memory: as many rows as there are observations in one."""
        count = max(1, min(ENCODE_ROWS, ENCODE_BYTES // (4 * math.prod(self.config.observation_shape))))
        return (block.to(self._device) for block in rows.split(count))

    def canonical(self, observation: Any) -> Tensor:
        """Observations in the model's layout: pictures [b, c, h, w] with views stacked, or vectors [b, d]."""
        o = observation if isinstance(observation, Tensor) else torch.from_numpy(np.ascontiguousarray(observation))
        shape, wanted = self.config.observation_shape, self.config.observation_dtype
        if o.is_floating_point() != (wanted == "float32") or (wanted == "uint8" and o.dtype != torch.uint8):
            raise ValueError(f"observation has dtype {o.dtype}; this model was trained on {wanted}")
        if o.dim() == 5:  # views, each [h, w, c] or [c, h, w], are stacked on the channels
            o = o.flatten(1, 2) if tuple(o.shape[3:]) == shape[1:] else o.movedim(-1, 2).flatten(1, 2)
        elif o.dim() == 3 and len(shape) == 3:
            o = o[:, None]  # grey pictures without a channel axis
        elif o.dim() == 4 and tuple(o.shape[1:]) != shape:
            o = o.movedim(-1, 1)
        if tuple(o.shape[1:]) != shape or not len(o):
            given = tuple(np.shape(observation))
            either = ", channels first or last" if len(shape) == 3 else ""
            single = len(given) == len(shape) and sorted(given) == sorted(shape)
            raise ValueError(
                f"observation has shape {given}; this model reads batches of {shape}{either}"
                + (": for a single one, give observation[None]" if single else "")
            )
        return o.float() if wanted == "float32" else o

    @staticmethod
    def _like(observation: Any, result: Any) -> Any:
        """Numpy for numpy."""
        if isinstance(observation, Tensor):
            return result
        if isinstance(result, Tensor):
            return result.numpy()
        return type(result)(*(None if x is None else x.numpy() for x in result))


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    return None if parts[0] is None else torch.cat(list(parts)).cpu()  # type: ignore[arg-type]


def _visible(encoding: Encoding) -> Tensor:
    """Rows [b] bool in which the object is probably visible."""
    if encoding.confidence is None:
        return torch.ones(len(encoding.agent), dtype=torch.bool)
    seen = torch.as_tensor(encoding.confidence) > 0.5
    if not seen.any():
        raise ValueError(
            "by the model, the object is hidden in all of these observations; give some in which it is visible"
        )
    return seen


def _vectors(name: str, values: Any, count: int | None, n: int) -> Tensor:
    """Finite numbers [count, n] that a user gives, or [n] if count is None; the last axis may be missing if n is 1."""
    try:
        given = torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} is not an array of numbers: {error}") from error
    if given.is_complex() or given.dtype == torch.bool:
        raise ValueError(f"{name} has dtype {given.dtype}; allowed are real numbers")
    vectors = given.float()
    shape, rows = ((n,), "") if count is None else ((count, n), ", one row for each observation")
    if n == 1 and vectors.dim() == len(shape) - 1:
        vectors = vectors[..., None]
    if vectors.shape != shape:
        raise ValueError(f"{name} has shape {tuple(vectors.shape)}; allowed is {shape}{rows}")
    bad = ~vectors.isfinite().all(-1)
    if bad.any():
        row = int(bad.int().argmax())
        which = vectors.tolist() if count is None else f"{vectors[row].tolist()} in row {row}"
        raise ValueError(f"{name} is {which}; all values must be finite in float32")
    return vectors


def _require_equal_lengths(**arrays: Any) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the arrays have {lengths} rows; give the same number of rows in each")


def load(folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Representation:
    """The representation saved in `folder`; nothing is unpickled."""
    model, facts = load_model(Path(folder))
    return Representation(model, facts, device)
