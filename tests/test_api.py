"""fit, evaluate and what comes out, as a user meets them."""

import math
import os
import signal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import palpate
from palpate import api, inputs, material, representation
from palpate.collecting.collect import collect
from palpate.config import TrainingConfig
from palpate.contacts.scenes import Scenes
from palpate.data.labelled import Labelled, Truth
from palpate.data.stream import Stream
from palpate.data.transitions import Transitions
from palpate.envs.registration import stream_world
from palpate.findings import Finding
from palpate.groups.translations import Translations
from palpate.inputs import Inputs
from palpate.methods.contact import Contact
from palpate.ranks import Ranks
from palpate.representation import Representation
from palpate.runlog import read_log
from palpate.training.loop import Interrupted

SHORT: dict[str, Any] = {
    "steps": 6,
    "batch_size": 8,
    "log_every": 2,
    "evaluate_every": 2,
    "optimizer": "adamw",  # a step of Muon costs four times as much on a CPU
    "device": "cpu",
    "progress": False,
}
COUNT = 120
UNCLEAR = "triples with and without contact do not separate"

# A few steps teach nothing, which the run says; those who test that ask for it.
pytestmark = pytest.mark.filterwarnings(f"ignore:{UNCLEAR}")


def labelled_vectors(count: int = COUNT, n: int = 2, share: float = 0.5) -> Labelled:
    """Vectors [agent, object]; a share of the objects jumps."""
    rng = np.random.default_rng(0)
    agent, agent_next, thing, thrown = rng.random((4, count, n)).astype(np.float32)
    contact = rng.random(count) < share
    thing_next = np.where(contact[:, None], thrown, thing)
    triples = Transitions(
        observation=np.hstack((agent, thing)),
        action=agent_next - agent,
        next_observation=np.hstack((agent_next, thing_next)),
    )
    columns = {"agent": agent, "object": thing, "agent_next": agent_next, "object_next": thing_next}
    truth = Truth(contact=torch.from_numpy(contact), **{name: torch.from_numpy(x) for name, x in columns.items()})
    return Labelled(triples, truth)


def vectors(**options: Any) -> Transitions:
    return labelled_vectors(**options).transitions


def noted(patch: pytest.MonkeyPatch, owner: Any, name: str, note: Any) -> list[Any]:
    """What is noted of every call."""
    notes: list[Any] = []
    plain = getattr(owner, name)
    patch.setattr(owner, name, lambda *given, **options: (notes.append(note(*given)), plain(*given, **options))[1])
    return notes


@pytest.fixture(scope="module")
def pictures() -> Labelled:
    return collect("palpate/Sprites-v0", COUNT, seed=0, labelled=True, size=20)


@pytest.fixture(scope="module")
def seer(pictures: Labelled) -> Representation:
    """A picture model that saw a few batches."""
    return palpate.fit(pictures.transitions, **SHORT)


@pytest.fixture(scope="module")
def feeler() -> Representation:
    return palpate.fit(vectors(), **SHORT)


class TestData:
    def test_triples_in_memory(self, seer: Representation) -> None:
        assert (seer.config.encoder, seer.config.observation_shape, seer.config.n) == ("small", (3, 20, 20), 2)
        assert seer.config.observation_dtype == "uint8"
        assert seer.facts["training"]["steps"] == 6
        assert seer.facts["palpate_version"] == palpate.__version__
        assert "120 triples" in seer.facts["data"]
        assert not seer.model.training

    def test_a_file_is_as_good_as_memory(self, feeler: Representation, tmp_path: Path) -> None:
        path = tmp_path / "log.h5"
        vectors().save(path)
        model = palpate.fit(str(path), **SHORT)
        o = vectors().rows(slice(None)).o
        assert torch.equal(model.encode(o).agent, feeler.encode(o).agent)
        with h5py.File(path, "r+"):
            pass  # nobody holds it any more

    def test_labels_given_along_are_not_looked_at(self, feeler: Representation) -> None:
        o = vectors().rows(slice(None)).o
        other = labelled_vectors()
        other.truth.agent.zero_()
        model = palpate.fit(other, **SHORT)
        assert torch.equal(model.encode(o).object, feeler.encode(o).object)

    def test_a_world_streams(self) -> None:
        model = palpate.fit(stream_world("palpate/SpritesAnisotropic-v0", size=20), body="ellipse", **SHORT)
        assert model.facts["data"].startswith("stream of SpritesConfig(size=20")
        encoding = model.encode(np.zeros((2, 20, 20, 3), np.uint8))
        assert encoding.orientation.shape == (2,)

    def test_unknown_id(self) -> None:
        with pytest.raises(ValueError, match="did you mean 'palpate/Sprites-v0'"):
            palpate.fit("palpate/Sprits-v0", **SHORT)

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.h5"):
            palpate.fit(tmp_path / "nothing.h5", **SHORT)

    def test_too_few_triples(self) -> None:
        with pytest.raises(ValueError) as error:
            palpate.fit(vectors(count=9), **SHORT)
        assert str(error.value) == ("there are 9 triples for batches of 8; collect more, or use a smaller batch_size")
        palpate.fit(vectors(count=10), **(SHORT | {"steps": 1}))

    def test_nothing_moves(self) -> None:
        o = np.random.default_rng(0).random((COUNT, 4), np.float32)
        still = Transitions(observation=o, action=np.zeros((COUNT, 2)), next_observation=o)
        with pytest.raises(ValueError, match="all actions are zero: nothing moved"):
            palpate.fit(still, **SHORT)

    def test_ranks_on_another_kind_of_device(self) -> None:
        elsewhere = Ranks(0, 2, torch.device("cuda", 0))
        with pytest.raises(ValueError, match=r"^the ranks are on 'cuda', but device is 'cpu'; both must be the same$"):
            palpate.fit(vectors(), ranks=elsewhere, device="cpu")

    def test_a_line_needs_the_radius(self) -> None:
        with pytest.raises(ValueError, match="actions have one dimension"):
            palpate.fit(vectors(n=1), **SHORT)
        model = palpate.fit(vectors(n=1), radius=0.1, **SHORT)
        assert model.encode(vectors(n=1).rows(slice(0, 3)).o).object.shape == (3, 1)

    def test_settings_of_the_scene_reach_the_model(self) -> None:
        scene: dict[str, Any] = {"body": "ellipse", "radius": 0.2, "rest_floor": 0.3}
        model = palpate.fit(vectors(), **scene, **SHORT)
        assert scene.items() <= vars(model.config.objective).items()
        reasons = {choice["name"]: choice["reason"] for choice in model.facts["choices"]}
        assert (reasons["body"], reasons["rest_floor"]) == ("as given", "as given")
        assert reasons["encoder"] == "observations are 4 numbers"

    def test_settings_as_a_whole_or_one_by_one(self, feeler: Representation) -> None:
        changes = {name: value for name, value in SHORT.items() if name != "progress"}
        model = palpate.fit(vectors(), training=TrainingConfig(**(changes | {"steps": 99})), steps=6, progress=False)
        o = vectors().rows(slice(0, 4)).o
        assert torch.equal(model.encode(o).agent, feeler.encode(o).agent)

    def test_unknown_settings_and_data(self) -> None:
        with pytest.raises(ValueError, match="data is 3; allowed are Transitions, a file of them, or a world with"):
            palpate.fit(3, **SHORT)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="lerning_rate"):
            palpate.fit(vectors(), lerning_rate=1.0, **SHORT)


class TestSupervised:
    def test_on_a_labelled_file(self, tmp_path: Path) -> None:
        labelled = labelled_vectors()
        labelled.save(tmp_path / "log.h5")
        model = palpate.fit(tmp_path / "log.h5", method="supervised", **(SHORT | {"steps": 60}), learning_rate=0.005)
        scores = palpate.evaluate(model, labelled)
        assert scores.l_test < 0.5 * scores.constant["l_test"]
        assert scores.contact_auroc is None
        rows = labelled.transitions.rows(slice(0, 2))
        assert (model.contact(*rows), model.would_touch(rows.o, rows.a), model.border(rows.o)) == (None, None, None)

    def test_on_a_world(self) -> None:
        world = stream_world("palpate/SpritesAnisotropic-v0", size=20)
        model = palpate.fit(world, method="supervised", body="ellipse", egocentric=True, **SHORT)
        encoding = model.encode(np.zeros((1, 20, 20, 3), np.uint8))
        assert (encoding.covariance, encoding.orientation.shape) == (None, (1,))

    def test_without_truth(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="method is 'supervised', but the data have no true states"):
            palpate.fit(vectors(), method="supervised", **SHORT)
        vectors().save(tmp_path / "log.h5")
        with pytest.raises(ValueError, match="there is no group 'truth'"):
            palpate.fit(tmp_path / "log.h5", method="supervised", **SHORT)


class TestEncode:
    def test_numpy_in_numpy_out(self, seer: Representation, pictures: Labelled) -> None:
        rows = pictures.transitions.rows(slice(0, 5))
        tensors, arrays = seer.encode(rows.o), seer.encode(rows.o.numpy())
        assert all(isinstance(x, torch.Tensor) for x in tensors if x is not None)
        assert all(isinstance(x, np.ndarray) for x in arrays if x is not None)
        np.testing.assert_array_equal(tensors.agent, arrays.agent)
        np.testing.assert_array_equal(tensors.covariance, arrays.covariance)
        triple = [x.numpy() for x in rows]
        assert isinstance(seer.contact(*triple), np.ndarray)
        assert isinstance(seer.would_touch(*triple[:2]), np.ndarray)
        assert isinstance(seer.contact(*rows), torch.Tensor)
        assert seer.contact(*triple).shape == seer.would_touch(*triple[:2]).shape == (5,)

    def test_channels_first_or_last(self, seer: Representation, pictures: Labelled) -> None:
        o = pictures.transitions.rows(slice(0, 5)).o.numpy()
        last = np.moveaxis(o, 1, -1)
        np.testing.assert_array_equal(seer.encode(last).object, seer.encode(o).object)

    def test_double_precision_is_read(self, feeler: Representation) -> None:
        o = vectors().rows(slice(0, 5)).o.numpy()
        np.testing.assert_array_equal(feeler.encode(o.astype(np.float64)).agent, feeler.encode(o).agent)

    @pytest.mark.parametrize("dtype", [np.float32, bool])
    def test_wrong_dtype(self, seer: Representation, dtype: type) -> None:
        with pytest.raises(ValueError, match=r"observation has dtype torch\..*; this model was trained on uint8"):
            seer.encode(np.zeros((2, 20, 20, 3), dtype))

    def test_integers_for_vectors(self, feeler: Representation) -> None:
        with pytest.raises(ValueError, match="this model was trained on float32"):
            feeler.encode(np.zeros((2, 4), np.uint8))

    @pytest.mark.parametrize("shape", [(20, 20, 3), (2, 20, 20, 4), (0, 20, 20, 3), (2, 1200)])
    def test_wrong_shape(self, seer: Representation, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"this model reads batches of \(3, 20, 20\)") as error:
            seer.encode(np.zeros(shape, np.uint8))
        assert str(shape) in str(error.value)
        assert "channels first or last" in str(error.value)
        assert ("observation[None]" in str(error.value)) == (shape == (20, 20, 3))

    def test_lists(self, feeler: Representation) -> None:
        assert feeler.encode([[0.1, 0.2, 0.3, 0.4]]).agent.shape == (1, 2)
        with pytest.raises(ValueError, match=r"this model reads batches of \(4,\)$"):  # which have no channels
            feeler.encode([[0.1, 0.2, 0.3]])

    def test_wrong_actions(self, feeler: Representation) -> None:
        rows = vectors().rows(slice(0, 5))
        for bad in (rows.a[:, :1], rows.a[:, 0], rows.a[None].expand(5, -1, -1)):
            with pytest.raises(ValueError, match=r"action has shape .*; allowed is \(5, 2\)"):
                feeler.would_touch(rows.o, bad)
        with pytest.raises(ValueError, match="the arrays have {'observation': 5, 'action': 4} rows"):
            feeler.would_touch(rows.o, rows.a[:4])

    @pytest.mark.parametrize("size", [1e30, 3e38])
    def test_actions_whose_squares_are_not_finite(self, feeler: Representation, size: float) -> None:
        """Refused as by `fit`, if only one action is that large; an agent may stay where it is."""
        rows = vectors().rows(slice(0, 5))
        huge = rows.a.clone()
        huge[3, 0] = size
        says = r"actions have a root mean square of .*e\+.*; allowed is .* their squares are not finite in float32"
        for asked in (lambda: feeler.would_touch(rows.o, huge), lambda: feeler.contact(rows.o, huge, rows.o_next)):
            with pytest.raises(ValueError, match=says):
                asked()
        assert feeler.would_touch(rows.o, torch.zeros(5, 2)).isfinite().all()

    @pytest.mark.parametrize("count", [4, 7])
    def test_triples_of_unequal_length(self, feeler: Representation, count: int) -> None:
        """Also by an even number, where pairs could be mixed up unnoticed."""
        rows = vectors().rows(slice(0, 6))
        with pytest.raises(ValueError):
            feeler.contact(rows.o, rows.a, vectors().rows(slice(0, count)).o)

    def test_objectives_without_a_body(self) -> None:
        model, rows = palpate.fit(vectors(), objective="paper", **SHORT), vectors().rows(slice(0, 5))
        assert model.would_touch(rows.o, rows.a) is None
        assert palpate.evaluate(model, labelled_vectors()).would_touch_auroc is None


class TestAlign:
    def test_one_translation_moves_both(self, feeler: Representation, tmp_path: Path) -> None:
        o = vectors().rows(slice(0, 9)).o
        before = feeler.encode(o)
        aligned = feeler.align({"observation": o, "agent": before.agent + torch.tensor([2.0, -3.0])})
        after = aligned.encode(o)
        torch.testing.assert_close(after.agent, before.agent + torch.tensor([2.0, -3.0]))
        torch.testing.assert_close(after.object, before.object + torch.tensor([2.0, -3.0]))
        assert torch.equal(after.covariance, before.covariance)
        assert torch.equal(feeler.encode(o).agent, before.agent)  # the old one stays
        aligned.save(tmp_path)
        assert torch.equal(palpate.load(tmp_path).encode(o).object, after.object)
        rows = vectors().rows(slice(0, 9))
        assert torch.equal(aligned.would_touch(rows.o, rows.a), feeler.would_touch(rows.o, rows.a))

    @pytest.mark.filterwarnings("ignore:after the best motion")  # six steps learn nothing
    def test_the_agent_fits_the_frame_and_the_object_has_an_offset(self, feeler: Representation) -> None:
        labelled = labelled_vectors()
        o, truth = labelled.transitions.rows(slice(None)).o, labelled.truth
        aligned = feeler.align({"observation": o.numpy(), "agent": truth.agent.numpy(), "object": truth.object})
        after = aligned.encode(o)
        for found, at in ((after.agent, truth.agent), (after.object, truth.object)):
            torch.testing.assert_close((found - at).mean(0), torch.zeros(2), atol=1e-5, rtol=0)
        by_agent = feeler.align({"observation": o, "agent": truth.agent})
        assert torch.equal(by_agent.encode(o).agent, after.agent)
        assert torch.equal(by_agent.frame.offset, torch.zeros(2))
        again = aligned.align({"observation": o, "agent": truth.agent, "object": truth.object})
        torch.testing.assert_close(again.encode(o).object, after.object)
        replaced = aligned.align({"observation": o, "agent": truth.agent})
        assert torch.equal(replaced.encode(o).object, by_agent.encode(o).object)

    def test_an_offset_moves_the_object_alone(self, feeler: Representation, tmp_path: Path) -> None:
        """A gripper whose reference point is not the middle of what touches: body and contacts stay where they are."""
        rows, offset = vectors().rows(slice(0, 9)), torch.tensor([0.3, -0.2])
        o, before = rows.o, feeler.encode(rows.o)
        known = {"observation": o, "agent": before.agent + 5, "object": before.object + 5 + offset}
        aligned = feeler.align(known)
        aligned.save(tmp_path)
        for model in (aligned, palpate.load(tmp_path), aligned.to("cpu")):
            after = model.encode(o)
            torch.testing.assert_close(after.agent, before.agent + 5)
            torch.testing.assert_close(after.object, before.object + 5 + offset)
            lines = after.object[:, None] + model.border(o)
            torch.testing.assert_close(lines, before.object[:, None] + feeler.border(o) + 5, atol=1e-5, rtol=0)
            assert torch.equal(model.would_touch(rows.o, rows.a), feeler.would_touch(rows.o, rows.a))
            assert torch.equal(model.contact(*rows), feeler.contact(*rows))
        assert torch.equal(feeler.encode(o).object, before.object)  # the old one stays
        assert "object_offset" not in feeler.facts
        by_centre = feeler.align({"observation": o, "agent": before.agent + 5, "agent_centre": offset.numpy()})
        torch.testing.assert_close(by_centre.encode(o).object, before.object + 5 + offset)
        by_object = feeler.align({"observation": o, "object": before.object + 5 + offset})
        torch.testing.assert_close(by_object.encode(o).agent, before.agent + 5 + offset)  # alone, it fits the frame

    def test_hidden_rows_do_not_count_for_the_object(
        self, feeler: Representation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        o, plain = vectors().rows(slice(0, 30)).o, feeler.model.encode
        sure = (torch.arange(30) % 3 > 0).float()[:, None]
        monkeypatch.setattr(feeler.model, "encode", lambda x: plain(x)._replace(confidences=sure))
        before = feeler.encode(o)
        lost = before.object + 100 * (1 - sure)
        aligned = feeler.align({"observation": o, "agent": before.agent, "object": lost + 1})
        torch.testing.assert_close(aligned.frame.offset, torch.ones(2))
        monkeypatch.setattr(feeler.model, "encode", lambda x: plain(x)._replace(confidences=0 * sure))
        with pytest.raises(ValueError, match="the object is hidden in all of these observations"):
            feeler.align({"observation": o, "object": lost})

    def test_rows_that_disagree_about_the_object(self, feeler: Representation) -> None:
        o = vectors().rows(slice(0, 50)).o
        found = feeler.encode(o)
        with pytest.warns(UserWarning, match="the rows disagree about the object"):
            feeler.align({"observation": o, "agent": found.agent, "object": -10 * found.object})

    def test_huge_positions(self, feeler: Representation, tmp_path: Path) -> None:
        """Their sum is not finite in float32, their mean is."""
        o, far = vectors().rows(slice(0, 9)).o, torch.full((9, 2), 3e38)
        aligned = feeler.align({"observation": o, "agent": far})
        aligned.save(tmp_path)
        torch.testing.assert_close(palpate.load(tmp_path).encode(o).agent, far)

    def test_a_frame_that_is_not_finite(self, feeler: Representation) -> None:
        o, largest = vectors().rows(slice(0, 1)).o, feeler.to("cpu")
        largest.model.inputs.unit.fill_(3e38)
        known = -3.4e38 * largest.encode(o).agent.sign()  # finite, as the estimates are, and farther away
        with pytest.raises(ValueError, match="the frame would move by .*it must be finite in float32"):
            largest.align({"observation": o, "agent": known})

    def test_positions_that_contradict_the_frame(self, feeler: Representation) -> None:
        """Turned by half a turn, as by actions of the wrong sign, and larger; a few positions say too little."""
        o = vectors().rows(slice(0, 50)).o
        turned = -10 * feeler.encode(o).agent
        with pytest.warns(UserWarning, match="may be rotated, mirrored or scaled relative to that of the actions"):
            feeler.align({"observation": o, "agent": turned})
        feeler.align({"observation": o[:5], "agent": turned[:5]})
        feeler.align({"observation": o[:1].repeat(50, 1), "object": torch.zeros(50, 2)})  # all on one mark

    @pytest.mark.parametrize(
        ("places", "says"),
        [
            (np.zeros((7, 2)), r"has shape \(7, 2\); allowed is \(20, 2\), one row for each observation"),
            (np.zeros((1, 2)), "has shape"),  # would be broadcast
            (np.zeros((20, 3)), "has shape"),
            (np.full((20, 2), np.nan), r"is \[nan, nan\] in row 0; all values must be finite"),
            (np.full((20, 2), 1e300), "must be finite"),
            (np.zeros((20, 2), complex), "has dtype torch.complex128; allowed are real numbers"),
            ([["a", "b"]] * 20, "is not an array of numbers"),
        ],
        ids=lambda value: "" if isinstance(value, str) else str(np.shape(value)),
    )
    @pytest.mark.parametrize("name", ["agent", "object"])
    def test_positions_that_are_none(self, feeler: Representation, name: str, places: Any, says: str) -> None:
        with pytest.raises(ValueError, match=f"{name} .*{says}"):
            feeler.align({"observation": torch.zeros(20, 4), "agent": torch.zeros(20, 2), name: places})

    def test_observations_that_are_no_numbers(self, feeler: Representation) -> None:
        o = torch.zeros(20, 4)
        o[3] = torch.nan
        with pytest.raises(ValueError, match="observation has values that are not finite"):
            feeler.align({"observation": o, "agent": torch.zeros(20, 2)})

    @pytest.mark.parametrize("known", [{}, {"agent": [[0, 0]]}, {"observation": np.zeros((1, 4))}])
    def test_what_it_needs(self, feeler: Representation, known: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="align needs 'observation' and 'agent' or 'object'"):
            feeler.align(known)

    def test_one_source_of_the_offset(self, feeler: Representation) -> None:
        o, at = torch.zeros(3, 4), torch.zeros(3, 2)
        for known in ({"object": at}, {"agent": at, "object": at}):
            with pytest.raises(ValueError, match="agent_centre is given; align then needs 'agent', and no 'object'"):
                feeler.align({"observation": o, "agent_centre": [0, 0], **known})
        for centre, says in (
            ([0, 0, 0], r"has shape \(3,\); allowed is \(2,\)$"),
            ([0], r"has shape \(1,\); allowed is \(2,\)$"),
            ([[0, 0]], r"has shape \(1, 2\); allowed is \(2,\)$"),
            ([[0], [0, 0]], "is not an array of numbers"),
            ([0, math.nan], r"is \[0.0, nan\]; all values must be finite"),
        ):
            with pytest.raises(ValueError, match=f"agent_centre {says}"):
                feeler.align({"observation": o, "agent": at, "agent_centre": centre})

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("objekt", "did you mean 'object'"),
            ("agent_center", "did you mean 'agent_centre'"),
            ("xyz", "allowed are observation, agent, object, agent_centre"),
            (3, "allowed are observation"),
        ],
    )
    def test_a_misspelt_key(self, feeler: Representation, name: Any, says: str) -> None:
        """Ignored, it would lose the offset of the object."""
        at = torch.zeros(3, 2)
        with pytest.raises(ValueError, match=f"known has {name!r}; {says}"):
            feeler.align({"observation": torch.zeros(3, 4), "agent": at, name: at})


class TestEvaluate:
    def test_half_is_measured_without_a_reference(self, feeler: Representation) -> None:
        labelled = labelled_vectors()
        assert palpate.evaluate(feeler, labelled).count == COUNT // 2
        assert palpate.evaluate(feeler, labelled, reference=labelled_vectors(40)).count == COUNT

    def test_the_reference_gives_the_translation(self, feeler: Representation) -> None:
        """A reference whose truth lies elsewhere moves the errors by that much, and L_test not at all."""
        labelled, moved = labelled_vectors(), labelled_vectors()
        moved.truth.agent.add_(100)
        moved.truth.object.add_(100)
        right, wrong = (palpate.evaluate(feeler, labelled, reference=given) for given in (labelled, moved))
        assert wrong.agent_error > 100
        assert right.agent_error < 10
        assert wrong.l_test == pytest.approx(right.l_test)

    def test_a_test_needs_labels(self) -> None:
        with pytest.raises(ValueError, match=r"test is Transitions.*; allowed are labelled triples"):
            palpate.fit(vectors(), test=vectors(), **SHORT)  # type: ignore[arg-type]

    def test_tested_on_what_it_learned_from(self) -> None:
        labelled = labelled_vectors()
        with pytest.warns(UserWarning, match="100% of the test triples are also training triples"):
            palpate.fit(labelled.transitions, test=labelled, **SHORT)

    def test_a_file_of_test_triples_is_closed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        labelled_vectors(40).save(tmp_path / "test.h5")
        opened = palpate.Labelled.open(tmp_path / "test.h5")
        monkeypatch.setattr("palpate.evaluation.Labelled.open", lambda _: opened)
        palpate.fit(vectors(), test=tmp_path / "test.h5", **SHORT)
        assert not opened.transitions._file

    def test_during_the_run(self, tmp_path: Path) -> None:
        model = palpate.fit(vectors(), test=labelled_vectors(40), out=tmp_path / "run", **SHORT)
        rows = read_log(tmp_path / "run" / "metrics.jsonl")
        assert all({"l_test", "contact_auroc"} <= set(row) for row in rows)
        assert palpate.evaluate(model, labelled_vectors(40)).l_test == pytest.approx(rows[-1]["l_test"], rel=1e-5)

    @pytest.mark.filterwarnings(
        "ignore:the (agent|object)'s learned", "ignore:the positions of agent and object do not explain"
    )
    @pytest.mark.parametrize(("fewest", "kept"), [(1, 1), (10**6, 2)])
    def test_the_weights_that_explain_what_was_held_out_are_handed_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fewest: int, kept: int
    ) -> None:
        """The last ones, if too few triples are held out."""
        monkeypatch.setattr("palpate.api.FEWEST_JUDGES", fewest)
        monkeypatch.setattr(Scenes, "separations", lambda self: [1.0])
        values = iter([3.0, 1.0, 2.0])
        monkeypatch.setattr(Contact, "held_out", lambda self, batch: next(values))
        model = palpate.fit(vectors(), test=labelled_vectors(40), out=tmp_path / "run", **SHORT)
        rows = read_log(tmp_path / "run" / "metrics.jsonl")
        assert [row["held_out"] for row in rows] == [3.0, 1.0, 2.0]
        assert palpate.evaluate(model, labelled_vectors(40)).l_test == pytest.approx(rows[kept]["l_test"], rel=1e-5)

    def test_weights_without_two_classes_are_not_chosen(self, tmp_path: Path) -> None:
        palpate.fit(vectors(), out=tmp_path / "run", **SHORT)  # far too short to tell the classes apart
        assert not any("held_out" in row for row in read_log(tmp_path / "run" / "metrics.jsonl"))

    def test_measuring_changes_nothing(self, feeler: Representation) -> None:
        o = vectors().rows(slice(0, 9)).o
        watched = palpate.fit(vectors(), test=labelled_vectors(40), **SHORT)
        assert torch.equal(watched.encode(o).object, feeler.encode(o).object)


@pytest.mark.parametrize("given", [vectors(), "labelled.h5"], ids=["triples", "a path"])
def test_evaluate_needs_true_states(given: Any) -> None:
    model = palpate.fit(labelled_vectors(), method="supervised", **SHORT)
    with pytest.raises(ValueError, match="needed are triples with true states: palpate.Labelled"):
        palpate.evaluate(model, given)


class TestFindings:
    def test_an_object_that_never_moves(self, tmp_path: Path) -> None:
        with pytest.warns(UserWarning, match=UNCLEAR) as caught:
            model = palpate.fit(vectors(share=0.0), out=tmp_path / "run", **SHORT)
        (finding,) = model.facts["findings"]
        assert str(Finding(**finding)) == str(caught[0].message)
        assert "Are there triples of both kinds" in finding["advice"]
        assert model.facts["quality"]["verdict"] == "not to be trusted"
        assert caught[0].filename == __file__  # it points at the caller
        assert palpate.load(tmp_path / "run").facts["findings"] == model.facts["findings"]

    @pytest.mark.filterwarnings("error")
    def test_a_supervised_run_has_none(self) -> None:
        assert palpate.fit(labelled_vectors(), method="supervised", **SHORT).facts["findings"] == []


class TestFolder:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        (tmp_path / "run").mkdir()  # an empty folder is no obstacle
        palpate.fit(vectors(), out=tmp_path / "run", **SHORT)
        return tmp_path / "run"

    def test_what_a_run_leaves(self, run: Path) -> None:
        names = {path.name for path in run.iterdir()}
        expected = {"run.json", "run.toml", "config.json", "model.safetensors", "metrics.jsonl", "checkpoint"}
        assert names == expected
        o = vectors().rows(slice(0, 3)).o
        assert palpate.load(run).encode(o).agent.shape == (3, 2)

    def test_nothing_is_overwritten_unasked(self, run: Path) -> None:
        before = (run / "model.safetensors").read_bytes()
        with pytest.raises(FileExistsError) as error:
            palpate.fit(vectors(), out=run, seed=1, **SHORT)
        assert str(error.value) == (
            f"{run} exists; resume the run there (resume=True, --resume), overwrite it (overwrite=True, --force), or "
            "choose another folder"
        )
        assert (run / "model.safetensors").read_bytes() == before

    def test_a_saved_model_is_not_overwritten_unasked_either(self, run: Path, seer: Representation) -> None:
        saved = run.parent / "saved"
        palpate.load(run).save(saved)
        before = (saved / "model.safetensors").read_bytes()
        with pytest.raises(FileExistsError, match="holds another model; overwrite it with overwrite=True"):
            seer.save(saved)
        assert (saved / "model.safetensors").read_bytes() == before
        palpate.load(run).save(saved)  # itself
        seer.save(saved, overwrite=True)
        assert palpate.load(saved).config == seer.config

    @pytest.mark.parametrize("foreign", [None, '{"lap": 3}', "no json"])
    def test_a_foreign_folder_is_never_deleted(self, tmp_path: Path, foreign: str | None) -> None:
        """Not even when it happens to hold a file called run.json."""
        folder = tmp_path / "photos"
        folder.mkdir()
        (folder / "holiday.txt").write_text("keep me")
        if foreign is not None:
            (folder / "run.json").write_text(foreign)
        with pytest.raises(ValueError, match="is not a run of palpate"):
            palpate.fit(vectors(), out=folder, overwrite=True, **SHORT)
        assert (folder / "holiday.txt").read_text() == "keep me"

    def test_a_file_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "run").write_text("keep me")
        with pytest.raises(FileExistsError, match="exists"):
            palpate.fit(vectors(), out=tmp_path / "run", **SHORT)
        with pytest.raises(ValueError, match="is not a run of palpate"):
            palpate.fit(vectors(), out=tmp_path / "run", overwrite=True, **SHORT)
        assert (tmp_path / "run").read_text() == "keep me"

    def test_a_run_that_cannot_start_costs_no_old_one(self, run: Path) -> None:
        o = np.random.default_rng(0).random((COUNT, 4), np.float32)
        still = Transitions(observation=o, action=np.zeros((COUNT, 2)), next_observation=o)
        with pytest.raises(ValueError, match="all actions are zero"):
            palpate.fit(still, out=run, overwrite=True, **SHORT)
        assert (run / "model.safetensors").exists()

    @pytest.mark.parametrize(
        ("change", "name"),
        [({"learning_rate": 0.1}, "learning_rate"), ({"objective": "paper"}, "method"), ({"seed": 3}, "seed")],
    )
    def test_resuming_another_run(self, run: Path, change: dict[str, Any], name: str) -> None:
        with pytest.raises(
            ValueError, match=f"was made with other settings: .*{name} was .* and is .*; resume with the same settings"
        ):
            palpate.fit(vectors(), out=run, resume=True, **(SHORT | change))

    def test_resuming_what_is_finished(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        before = palpate.load(run).model.state_dict()
        palpate.fit(vectors(), out=run, resume=True, **SHORT | {"progress": True})
        assert "continuing after step 6 of 6" in capsys.readouterr().err
        after = palpate.load(run).model.state_dict()
        assert all(np.array_equal(before[name], after[name], equal_nan=True) for name in before)

    def test_a_refusal_comes_before_what_was_chosen(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(FileExistsError):
            palpate.fit(vectors(), out=run, **SHORT | {"progress": True})
        assert not capsys.readouterr().err

    def test_resuming_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="holds no run to resume; leave out resume to start one there"):
            palpate.fit(vectors(), out=tmp_path / "run", resume=True, **SHORT)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("text", ['{"lap": 3}', "[]"])
    def test_resuming_from_a_description_of_something_else(self, run: Path, text: str) -> None:
        (run / "run.json").write_text(text)
        with pytest.raises(FileNotFoundError, match="holds no run to resume"):
            palpate.fit(vectors(), out=run, resume=True, **SHORT)

    @pytest.mark.parametrize("kind", ["set", "stream", "egocentric"])
    def test_stopped_and_resumed_is_straight_through(
        self, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data: Any = stream_world("palpate/Sprites-v0", size=20) if kind == "stream" else vectors()
        settings = SHORT | {"egocentric": kind == "egocentric"}
        straight = palpate.fit(data, out=tmp_path / "straight", **settings)

        def stop(step: int, readings: dict[str, float]) -> None:
            if step == 4:
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(Interrupted, match="stopped after step 4 of 6") as stopped:
            palpate.fit(data, out=tmp_path / "stopped", watch=stop, **settings)
        assert stopped.value.__notes__ == [f"The run is saved in {tmp_path / 'stopped'}; continue it with resume=True."]
        assert not (tmp_path / "stopped" / "model.safetensors").exists()
        capsys.readouterr()
        resumed = palpate.fit(data, out=tmp_path / "stopped", resume=True, **settings | {"progress": True})
        assert "continuing after step 4 of 6" in capsys.readouterr().err
        one, two = straight.model.state_dict(), resumed.model.state_dict()
        assert all(np.array_equal(one[k], two[k], equal_nan=True) for k in one)
        logs = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("straight", "stopped")]
        assert logs[0] == logs[1]

    def test_progress_goes_to_stderr(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        palpate.fit(vectors(), **(SHORT | {"progress": True}))
        out, err = capfd.readouterr()
        assert out == ""
        assert "contact, mlp on cpu 6/6" in err
        assert "steps/s" in err


def test_same_seed_same_model_and_watch_is_called_with_every_reading(feeler: Representation) -> None:
    torch.rand(3)
    seen: list[int] = []
    again = palpate.fit(vectors(), watch=lambda step, readings: seen.append(step), **SHORT)
    other = palpate.fit(vectors(), seed=1, **SHORT)
    o = vectors().rows(slice(0, 9)).o
    assert torch.equal(again.encode(o).object, feeler.encode(o).object)
    assert not torch.equal(other.encode(o).object, feeler.encode(o).object)
    assert seen == [2, 4, 6]


def test_the_unit_of_the_actions_is_the_unit_of_the_positions() -> None:
    """The same log in millimetres: the same answer in millimetres."""
    rows = vectors().rows(slice(None))
    metres, millimetres = (
        palpate.fit(Transitions(observation=rows.o, action=unit * rows.a, next_observation=rows.o_next), **SHORT)
        for unit in (1.0, 1024.0)  # a power of two: not a bit is rounded differently
    )
    one, two = metres.encode(rows.o), millimetres.encode(rows.o)
    torch.testing.assert_close(two.agent, 1024 * one.agent)
    torch.testing.assert_close(two.object, 1024 * one.object)
    torch.testing.assert_close(two.covariance, 1024**2 * one.covariance)


class TestUnseen:
    def test_what_was_held_out_sets_the_threshold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told = noted(monkeypatch, Contact, "recall", lambda model, blocks: sum(len(block.a) for block in blocks))
        palpate.fit(vectors(count=400), **SHORT)
        palpate.fit(stream_world("palpate/Sprites-v0", size=20), **SHORT)
        assert told == [40, 0]

    @pytest.mark.parametrize("method", ["interaction", "vae"])
    def test_an_episode_of_one_row_may_be_held_out(self, method: Any) -> None:
        data = vectors(count=200)
        o, a, o_next = data.rows(slice(None))
        for alone in (0, 199):  # whichever of the two episodes is held out
            episode = np.zeros(200, dtype=np.int64)
            episode[alone] = 1
            triples = Transitions(observation=o, action=a, next_observation=o_next, episode=episode)
            assert palpate.fit(triples, method=method, **SHORT).encode(o).agent.shape == (200, 2)


class TestMemory:
    """Large pictures pass through in blocks; small budgets stand for large pictures."""

    ROW = 3 * 20 * 20  # numbers in a picture

    def test_encoding(self, seer: Representation, pictures: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = pictures.transitions.rows(slice(0, 50))
        whole = [*seer.encode(rows.o), seer.contact(*rows), seer.would_touch(*rows[:2]), seer.border(rows.o)]
        seen = noted(monkeypatch, Inputs, "forward", lambda inputs, o, *_: len(o))
        monkeypatch.setattr(representation, "ENCODE_BYTES", 4 * self.ROW * 7)
        blocks = [*seer.encode(rows.o), seer.contact(*rows), seer.would_touch(*rows[:2]), seer.border(rows.o)]
        for one, two in zip(whole, blocks, strict=True):
            assert (one is None and two is None) or torch.allclose(one, two, atol=1e-5)
        assert max(seen) == 14  # o and o' together
        monkeypatch.setattr(representation, "ENCODE_BYTES", 1)
        assert len(seer.encode(rows.o).agent) == 50  # row by row, where nothing else fits

    def test_scales(self, pictures: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
        batch, made = pictures.transitions.rows(slice(0, 50)), []
        doubles = noted(monkeypatch, torch.Tensor, "double", lambda x: len(x) if x.dim() == 4 else 0)
        for budget in (inputs.CHUNK_BYTES, 4 * self.ROW * 7):
            monkeypatch.setattr(inputs, "CHUNK_BYTES", budget)
            doubles.clear()
            made.append(Inputs((3, 20, 20), Translations(2)))
            made[-1].measure(batch)
        assert max(doubles) == 7
        torch.testing.assert_close(made[0].state_dict(), made[1].state_dict())

    def test_fixed_sets(self, pictures: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows that the scales are taken from, rows that are held out, and rows that are judged together."""
        monkeypatch.setattr(material, "SAMPLE_BYTES", 2 * self.ROW * 9)
        monkeypatch.setattr(material, "HELD_OUT_BYTES", 2 * self.ROW * 7)
        monkeypatch.setattr(api, "BLOCK_BYTES", 8 * self.ROW * 3)
        measured = noted(monkeypatch, Contact, "measure", lambda model, sample, actions: len(sample.a))
        recalled = noted(monkeypatch, Contact, "recall", lambda model, blocks: [len(block.a) for block in blocks])
        palpate.fit(pictures.transitions, **SHORT)
        assert (measured, recalled) == ([9], [[3, 3]])  # the seventh is alone, and a loss compares rows

    def test_streams(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(material, "SAMPLE_BYTES", 2 * self.ROW * 9)
        drawn = noted(monkeypatch, Stream, "draw", lambda stream, count, generator: count)
        palpate.fit(stream_world("palpate/Sprites-v0", size=20), **SHORT)
        assert (drawn[0], max(drawn)) == (9, 9)


@pytest.mark.parametrize(("name", "near"), [("stepz", "steps"), ("bodi", "body")])
def test_a_misspelt_keyword_gets_the_nearest(name: str, near: str) -> None:
    with pytest.raises(
        TypeError, match=rf"fit\(\) got an unexpected keyword argument '{name}'; did you mean '{near}'\?"
    ):
        palpate.fit(vectors(), **{name: 3})
