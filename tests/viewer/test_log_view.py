"""A log, its lists and its findings, without a browser."""

import base64
import io
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from written import truth, write_zarr

from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.data.labelled import Labelled
from palpate.data.logs.log import LogOptions, open_log
from palpate.data.transitions import Transitions
from palpate.figures import long_axis
from palpate.methods.base import Encoding
from palpate.projection import Homography
from palpate.representation import Representation
from palpate.viewer.answers import Answer, reasons, verdict
from palpate.viewer.log import NO_PROJECTION, Log
from palpate.viewer.marks import Marks, as_picture, degrees, svg
from palpate.viewer.ranking import Ranking
from palpate.viewer.search import Search


def pixels(source: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))


def test_a_triple_is_shown_as_it_is(made_runs: Path, model: Representation) -> None:
    with Labelled.open(made_runs / "log.h5") as labelled:
        log = Log(labelled.transitions, model, labelled.truth)
        shown = log.show(7)
        assert shown.panels[0].marks == ""  # the projection is not known yet
        assert log.prepare()
        assert log.aligned
        shown = log.show(7)
        batch = labelled.transitions.rows([7])
        for panel, o in zip(shown.panels, (batch.o, batch.o_next), strict=True):
            assert np.array_equal(pixels(panel.source), o[0].permute(1, 2, 0).numpy())
            assert panel.marks.count("<circle") >= 4  # two rings, each with a rim, and dots
        assert shown.touched == bool(labelled.truth.contact[7])  # type: ignore[index]
        assert shown.action == batch.a[0].tolist()
        assert shown.plane.startswith("<svg")
        assert verdict(shown.answer)  # type: ignore[arg-type]


def test_the_truth_of_a_log_is_shown_without_a_model(made_runs: Path) -> None:
    with Labelled.open(made_runs / "log.h5") as labelled:
        log = Log(labelled.transitions, None, labelled.truth)
        assert log.prepare()
        assert log.prepare()  # of another tab: nothing is done twice
        shown = log.show(7)
        assert [panel.marks.count("<circle") for panel in shown.panels] == [4, 4]  # two rings, each with a rim
        assert shown.plane.count("<polyline") == 2  # the action
        assert (shown.answer, shown.touched) == (None, bool(labelled.truth.contact[7]))  # type: ignore[index]
        x, y = labelled.truth.object[7].tolist()
        assert ("object, true", f"{x:.3f}, {y:.3f}") in [line[:2] for line in shown.places]


def test_positions_of_the_model_are_beside_the_true_ones(made_runs: Path, model: Representation) -> None:
    with Labelled.open(made_runs / "log.h5") as labelled:
        log = Log(labelled.transitions, model, labelled.truth)
        log.prepare()
        shown = log.show(7)
        assert [name for name, *_ in shown.places] == [
            "agent", "agent, true", "object", "object, visible", "object, true",
        ]  # fmt: skip
        batch = labelled.transitions.rows([7])
        x, y = log.model.encode(batch.o_next).agent[0].tolist()  # type: ignore[union-attr]
        assert shown.places[0][2] == f"{x:.3f}, {y:.3f}"
        assert shown.answer is not None
        moved = shown.answer.path[1] - shown.answer.path[0]  # type: ignore[index]
        assert moved == pytest.approx(batch.a[0].numpy(), abs=1e-5)


def test_why_no_positions_are_drawn(made_runs: Path, model: Representation) -> None:
    with Transitions.open(made_runs / "log.h5") as triples:
        log = Log(triples, model)  # whose positions are not yet learned
        assert log.prepare()
        assert log.projection is None
        assert log.note == NO_PROJECTION
        assert log.show(3).panels[0].marks == ""
        log = Log(triples)
        assert not log.prepare()
        assert log.note == ""


def test_only_the_shown_triple_is_read(made_runs: Path, model: Representation, monkeypatch: pytest.MonkeyPatch) -> None:
    with Transitions.open(made_runs / "log.h5") as triples:
        read: list[int] = []
        rows = Transitions.rows
        monkeypatch.setattr(
            Transitions, "rows", lambda self, index: (read.append(len(np.atleast_1d(index))), rows(self, index))[1]
        )
        log = Log(triples, model)
        first = log.show(3, whole=False)
        assert first.answer is not None
        assert first.answer.contact is None
        whole = log.show(3)
        assert read == [1]  # the picture is neither read nor encoded again
        assert whole.panels is first.panels
        assert whole.answer is not None
        assert whole.answer.contact is not None


def test_rows_are_held_to_the_log(made_runs: Path) -> None:
    with Transitions.open(made_runs / "log.h5") as triples:
        log = Log(triples)
        assert [log.row(x) for x in (None, -3, 5, 7.9, 1e9, float("inf"))] == [0, 0, 5, 7, 119, 0]
        assert log.show(0).answer is None


def recorded(episode: list[int] | None) -> Transitions:
    x = np.arange(7.0)[:, None].repeat(2, 1)
    return Transitions(observation=x, action=x + 1, next_observation=x, episode=None if episode is None else episode)


def test_rows_are_found_by_episode_and_frame() -> None:
    search = Search(recorded([4, 4, 4, 2, 2, 4, 9]))
    assert [search.where(row) for row in (0, 2, 3, 5, 6)] == [(4, 0), (4, 2), (2, 0), (4, 3), (9, 0)]
    assert [search.find(text) for text in ("6", " 3 ", "4:3", "2 : 1", "9:0")] == [6, 3, 5, 4, 6]
    for text, message in (
        ("7", "there is no row 7; the rows are 0 to 6"),
        ("3:0", "there is no episode 3; they are 2 to 9"),
        ("2:2", "episode 2 has triples that begin with frames 0 to 1"),
        ("-1", "'-1' is neither a row, such as 17, nor an episode and a frame, such as 3:17"),
        ("2:", "'2:' is neither a row"),
    ):
        with pytest.raises(ValueError, match=message):
            search.find(text)
    assert Search(recorded(None)).where(0) is None
    with pytest.raises(ValueError, match="this log has no episodes; give a row"):
        Search(recorded(None)).find("0:0")


def test_frames_of_a_log_with_a_stride(tmp_path: Path) -> None:
    log = truth(lengths=(9, 12))
    with open_log(
        write_zarr(tmp_path / "log.zarr", log), LogOptions(observation="top", position="state[:2]", stride=3)
    ) as t:
        search = Search(t)
        assert [search.where(row) for row in range(len(t))] == [(0, 0), (0, 3), (1, 0), (1, 3), (1, 6)]
        assert [search.find(text) for text in ("1:3", "1:5", "1:6")] == [3, 3, 4]
        assert [search.instead(text) for text in ("3", "1:3", "1:6")] == ["", "", ""]
        assert search.instead("1:5") == "no triple begins with frame 5; shown is the one before"


def test_rows_are_filtered_by_contact() -> None:
    p = np.array([0.95, 0.02, 0.5, np.nan, 0.91, 0.3, 0.99])
    touched = np.array([True, True, False, True, False, False, True])
    search = Search(recorded(None), touched)
    found = {name: search.matching(name, p).rows.tolist() for name in search.filters(model=True)}
    assert found == {
        "all": [0, 1, 2, 3, 4, 5, 6],
        "contact": [0, 4, 6],
        "none": [1],
        "doubtful": [2, 5],
        "true contact": [0, 1, 3, 6],
        "true none": [2, 4, 5],
        "wrong": [1, 4],
    }
    assert list(search.filters(model=False)) == ["all", "true contact", "true none"]
    assert list(Search(recorded(None)).filters(model=True)) == ["all", "contact", "none", "doubtful"]
    assert search.matching("contact", None).rows.tolist() == []
    matches = search.matching("contact", p)
    assert [matches.nearest(row) for row in (0, 3, 6)] == [0, 4, 6]
    assert [matches.beside(row, 1) for row in (0, 2, 6)] == [4, 4, None]
    assert [matches.beside(row, -1) for row in (0, 2, 6)] == [None, 0, 4]
    assert matches.random() in (0, 4, 6)
    assert search.matching("none", np.ones(7)).nearest(3) is None


def test_vectors_and_views() -> None:
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    shown = Log(Transitions(observation=x, action=x[:, :2], next_observation=x)).show(1)
    assert shown.panels[0].values == pytest.approx(x[1].tolist())
    two = torch.zeros(6, 4, 5, dtype=torch.uint8)
    two[3:] = 9
    picture = as_picture(two, {"views": 2})
    assert picture.shape == (4, 10, 3)
    assert picture[0, :, 0].tolist() == [0] * 5 + [9] * 5


def test_another_log_is_refused(model: Representation) -> None:
    x = np.zeros((5, 3), np.float32)
    with pytest.raises(ValueError, match=r"the triples have observations \(3,\) and actions of 2 numbers; the model"):
        Log(Transitions(observation=x, action=x[:, :2], next_observation=x), model)


def test_words_about_contact() -> None:
    touched = Answer(Marks(), Marks(), None, np.array([1.0]), 0.1, False, np.array([0.02]), np.array([0.97]))
    assert verdict(touched) == "Contact, 97%"
    text = " ".join(reasons(touched))
    assert "The scene changed: the squared distance in W between the two scenes is 1, 10.0 times the threshold" in text
    assert "By geometry, the path misses the learned body: 2% before the move" in text
    assert "They disagree" in text
    several = touched._replace(distance=np.ones(2), would_touch=np.array([0.5, 0.99]), contact=np.array([0.5, 0.0]))
    assert verdict(several) == "Object 1: doubtful: contact with 50%; object 2: no contact"
    assert verdict(touched._replace(contact=None)) == "This model predicts no contacts"


def test_lists(made_runs: Path, model: Representation) -> None:
    with Transitions.open(made_runs / "log.h5") as triples:
        ranking = Ranking(model, triples)
        assert ranking.nearest(0, 3) == ranking.doubtful(3) == []
        ranking.start()
        for _ in range(600):
            if ranking.finished:
                break
            time.sleep(0.1)
        assert (ranking.done, ranking.error) == (120, "")
        batch = triples.rows(slice(None))
        contact = model.contact(*batch)
        assert ranking.contact == pytest.approx(contact.numpy(), abs=1e-5)
        least = (0.5 - (contact - 0.5).abs()).numpy()
        assert [row for row, _ in ranking.doubtful(5)] == np.argsort(-least, kind="stable")[:5].tolist()
        with torch.no_grad():
            w = model.model.scene(batch.o).flatten(1)
        apart = (w - w[4]).square().sum(1).numpy()
        found = ranking.nearest(4, 3)
        assert found[0][1] <= found[1][1] <= found[2][1]
        assert 4 not in dict(found)
        assert found[0][1] == pytest.approx(np.sort(apart)[1], abs=1e-2)
        ranking.stop()


def test_lists_of_a_file_that_fails_say_so(made_runs: Path, model: Representation) -> None:
    triples = Transitions.open(made_runs / "log.h5")
    ranking = Ranking(model, triples)
    triples.close()
    ranking.start()
    ranking._thread.join(30)
    assert ranking.finished
    assert "was closed" in ranking.error


def test_marks_are_in_the_pictures_pixels() -> None:
    drawn = svg(
        Marks(agent=np.array([0.5, 0.25]), objects=np.array([[0.1, 0.9]]), confidences=np.array([0.4])),
        Homography.of_extent((0, 1, 0, 1), 20, 20),
        20,
    )
    assert 'cx="10.00" cy="15.00"' in drawn
    assert 'cx="2.00" cy="2.00"' in drawn
    assert '<g opacity="0.40">' in drawn


def test_a_body_that_turns_shows_its_long_axis() -> None:
    box = np.array([[2.0, 1.0], [-2.0, 1.0], [-2.0, -1.0], [2.0, -1.0]]) @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    ends = long_axis(np.array([5.0, 5.0]), np.pi / 2, box)
    assert sorted(ends.round(6).tolist()) == [[5, 3], [5, 7]]
    assert [degrees(x) for x in (None, 0.0, np.pi / 2, -np.pi / 4, np.pi - 1e-4)] == ["", "0°", "90°", "135°", "0°"]
    project = Homography.of_extent((0, 10, 0, 10), 100, 100)
    marks = Marks(objects=np.array([[5.0, 5.0]]), borders=box[None])
    turned = marks._replace(angles=np.array([np.pi / 2]))
    assert 'points="50.00,70.00 50.00,30.00"' in svg(turned, project, 100)
    assert svg(marks, project, 100).count("<polyline") + 2 == svg(turned, project, 100).count("<polyline")


def test_the_orientation_of_a_model_is_beside_the_true_one() -> None:
    labelled = collect("palpate/SpritesAnisotropic-v0", 60, size=20, labelled=True, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one step nothing is learned
        trained = fit(
            labelled.transitions, body="ellipse", steps=1, batch_size=16, progress=False, device="cpu", encoder="small"
        )
    log = Log(labelled.transitions, trained, labelled.truth)
    log.prepare()
    places = {name: (o, o_next) for name, o, o_next in log.show(3).places}
    angles = trained.encode(labelled.transitions.rows([3]).o).orientation
    assert places["object, long axis"][0] == degrees(float(angles[0]))
    assert labelled.truth.angle_next is not None
    assert places["object, true angle"][1] == degrees(float(labelled.truth.angle_next[3]))


def test_several_objects_have_several_colours() -> None:
    encoding = Encoding(torch.zeros(1, 2), torch.rand(1, 3, 2))
    drawn = svg(Marks(objects=encoding.objects[0].numpy()), Homography.of_extent((0, 1, 0, 1), 20, 20), 20)
    assert len({part[:7] for part in drawn.split('fill="#')[1:]}) == 3
