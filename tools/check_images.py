"""Find the images of a data set that cannot be read: missing, truncated, damaged, no images.

    python tools/check_images.py --dataset landmarks_full_train
    python tools/check_images.py --folder photos --workers 8
    python tools/check_images.py --list train.txt --image-root photos --output bad.json

Writes a JSON list of {"image": ..., "reason": ...} and exits with 1 if it is not empty. A data set
by name lies below the environment variable RETRIEVAL_DATASETS.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sl_retrieval import catalog
from sl_retrieval.builders import EXTENSIONS, find_image, register_builtin
from sl_retrieval.image_scan import Unreadable, scan_images, write_report
from sl_retrieval.list_files import read_list

SHOWN = 10


def images_of_dataset(name: str) -> list[str]:
    """The images of a registered data set."""
    register_builtin()
    return list(catalog.get(name).images)


def images_of_folder(folder: Path) -> list[str]:
    """All .jpg, .jpeg and .png below a folder."""
    if not folder.is_dir():
        raise ValueError(f"no folder {folder}, expected one with images")
    files = (file for file in sorted(folder.rglob("*")) if file.suffix.lower() in EXTENSIONS)
    images = [str(file) for file in files]
    if not images:
        raise ValueError(f"no {', '.join(EXTENSIONS)} below {folder}, expected at least one")
    return images


def images_of_list(list_file: Path, image_root: Path) -> list[str]:
    """The images that a list names, each once, also those that do not exist."""
    names = dict.fromkeys(image for image, _ in read_list(list_file))
    return [str(find_image(image_root, name) or image_root / name) for name in names]


def main(images: Sequence[str], workers: int, output: Path) -> list[Unreadable]:
    """Check the images, write the report and print a summary."""
    unreadable = scan_images(images, workers)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_report(output, unreadable)
    print(f"{len(unreadable)} of {len(images)} images cannot be read; report: {output}")
    for entry in unreadable[:SHOWN]:
        print(f"  {entry.image}: {entry.reason}")
    if len(unreadable) > SHOWN:
        print(f"  ... and {len(unreadable) - SHOWN} more")
    return unreadable


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--dataset", metavar="NAME", help="a registered data set")
    source.add_argument("--folder", type=Path, metavar="DIR", help="all images below a folder")
    source.add_argument(
        "--list", type=Path, metavar="FILE", help="the images that a list file names"
    )
    parser.add_argument(
        "--image-root", type=Path, metavar="DIR", help="folder that the names of --list belong to"
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="threads (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("unreadable.json"),
        help="report to write (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if (options.list is None) != (options.image_root is None):
        parser.error("--list and --image-root go together")
    return options


def run(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0 if every image can be read, 1 if not, 2 for wrong arguments."""
    options = _parse(arguments)
    try:
        if options.dataset is not None:
            images = images_of_dataset(options.dataset)
        elif options.folder is not None:
            images = images_of_folder(options.folder)
        else:
            images = images_of_list(options.list, options.image_root)
        return int(bool(main(images, options.workers, options.output)))
    except ValueError as error:
        print(f"check_images: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
