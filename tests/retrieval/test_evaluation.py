"""A network on data sets by name, against its descriptors and the metrics called by hand."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sl_retrieval import catalog
from sl_retrieval.builders import from_folders
from sl_retrieval.evaluation import Extraction, evaluate_network, memory_mapped
from sl_retrieval.extraction import extract_descriptors
from sl_retrieval.network import ImageRetrievalNet, build_network
from sl_retrieval.revisited import evaluate_classic, evaluate_revisited
from sl_retrieval.whitening import apply_whitening, learn_pca_whitening

SIZE = 48


@pytest.fixture(scope="module")
def network() -> ImageRetrievalNet:
    torch.manual_seed(0)
    return build_network("squeezenet1_1").eval()


@pytest.fixture(scope="module")
def data_root(picture_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """toy: two queries in revisited form with boxes; own: the same in classic form, as JSON."""
    root = tmp_path_factory.mktemp("test_sets")
    pictures = sorted(picture_folder.rglob("*.png"))
    names = [f"picture_{n}" for n in range(len(pictures))]
    revisited = [
        {"bbx": [2, 2, 40, 36], "easy": [1, 2], "hard": [3], "junk": [0]},
        {"bbx": [0, 0, 48, 40], "easy": [], "hard": [7, 8], "junk": [6]},
    ]
    classic = [{"ok": e["easy"] + e["hard"], "junk": e["junk"]} for e in revisited]
    for name, entries in (("toy", revisited), ("own", classic)):
        (root / name / "jpg").mkdir(parents=True)
        for picture, stem in zip(pictures, names, strict=True):
            Image.open(picture).save(root / name / "jpg" / f"{stem}.jpg")
        content = {"imlist": names, "qimlist": [names[0], names[6]], "gnd": entries}
        if name == "toy":
            (root / name / f"gnd_{name}.pkl").write_bytes(pickle.dumps(content))
        else:
            (root / name / f"gnd_{name}.json").write_text(json.dumps(content))
    return root


def described(network: ImageRetrievalNet, root: Path, name: str) -> torch.Tensor:
    files = [str(root / name / "jpg" / f"picture_{n}.jpg") for n in range(48)]
    return extract_descriptors(network, files, size=SIZE)


def test_revisited_queries_are_cut_to_their_boxes(
    network: ImageRetrievalNet, data_root: Path
) -> None:
    found = evaluate_network(network, "toy", data_root, Extraction(SIZE))
    files = [str(data_root / "toy" / "jpg" / f"picture_{n}.jpg") for n in (0, 6)]
    boxes = [(2.0, 2.0, 40.0, 36.0), (0.0, 0.0, 48.0, 40.0)]
    queries = extract_descriptors(network, files, size=SIZE, boxes=boxes)
    gnd = [
        {"easy": [1, 2], "hard": [3], "junk": [0]},
        {"easy": [], "hard": [7, 8], "junk": [6]},
    ]
    expected = evaluate_revisited(queries, described(network, data_root, "toy"), gnd)
    for protocol in ("easy", "medium", "hard"):
        assert found[protocol]["map"] == pytest.approx(expected[protocol]["map"])
    whole = extract_descriptors(network, files, size=SIZE)
    uncut = evaluate_revisited(whole, described(network, data_root, "toy"), gnd)
    assert uncut["medium"] != expected["medium"], "the test set would not notice a missing cut"


def test_a_users_own_ground_truth_and_distractors(
    network: ImageRetrievalNet, data_root: Path, tmp_path: Path
) -> None:
    plain = evaluate_network(network, "own", data_root, Extraction(SIZE))["all"]
    database = described(network, data_root, "own").numpy()
    np.save(tmp_path / "near.npy", database[[1, 2]])
    harder = evaluate_network(network, "own", data_root, Extraction(SIZE), [tmp_path / "near.npy"])[
        "all"
    ]
    expected = evaluate_classic(
        database[[0, 6]],
        database,
        [{"ok": [1, 2, 3], "junk": [0]}, {"ok": [7, 8], "junk": [6]}],
        [database[[1, 2]]],
    )
    assert harder["map"] == pytest.approx(expected["map"])
    assert harder["map"] < plain["map"]


def test_each_image_of_a_labelled_set_is_a_query_against_the_others(
    network: ImageRetrievalNet, picture_folder: Path
) -> None:
    if "evaluated" not in catalog.names():
        catalog.register("evaluated", lambda: from_folders("evaluated", picture_folder))
    found = evaluate_network(network, "evaluated", Path("nowhere"), Extraction(SIZE))["all"]
    data = catalog.get("evaluated")
    descriptors = extract_descriptors(network, data.images, size=SIZE)
    scores = descriptors @ descriptors.T
    first = []
    for query in range(len(scores)):
        scores[query, query] = -1
        first.append(data.labels[int(scores[query].argmax())] == data.labels[query])
    assert found["mp@1"] == pytest.approx(np.mean(first))


def test_whitening_is_applied_to_queries_and_database(
    network: ImageRetrievalNet, data_root: Path
) -> None:
    database = described(network, data_root, "own").numpy()
    mean, projection = learn_pca_whitening(database)
    extraction = Extraction(SIZE, whitening=(mean, projection[:8]))
    found = evaluate_network(network, "own", data_root, extraction)["all"]
    white = apply_whitening(database, mean, projection, 8)
    gnd = [{"ok": [1, 2, 3], "junk": [0]}, {"ok": [7, 8], "junk": [6]}]
    expected = evaluate_classic(white[[0, 6]], white, gnd)
    assert found["map"] == pytest.approx(expected["map"])


def test_missing_images_and_sets_and_bad_distractors_are_named(
    network: ImageRetrievalNet, data_root: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"nothing.*gnd_nothing\.pkl"):
        evaluate_network(network, "nothing", data_root, Extraction(SIZE))
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "gnd_own.json").write_text((data_root / "own" / "gnd_own.json").read_text())
    with pytest.raises(ValueError, match=r"own: 50 of 50 images are missing, such as .*picture_0"):
        evaluate_network(network, "own", tmp_path, Extraction(SIZE))
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"bad\.npy"):
        list(memory_mapped([tmp_path / "bad.npy"]))
