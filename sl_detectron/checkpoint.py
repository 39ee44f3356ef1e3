"""A checkpointer that a kill at any moment leaves in a state from which training can resume."""

from pathlib import Path

from detectron2.checkpoint import DetectionCheckpointer


class AtomicCheckpointer(DetectionCheckpointer):
    """DetectionCheckpointer whose file ``last_checkpoint`` is never half-written.

    A checkpoint is named there only after it is complete, so a half-written one is never loaded.
    """

    def tag_last_checkpoint(self, last_filename_basename: str) -> None:
        """Name the checkpoint to resume from."""
        unfinished = Path(self.save_dir, "last_checkpoint.tmp")
        unfinished.write_text(last_filename_basename, encoding="utf-8")
        unfinished.replace(Path(self.save_dir, "last_checkpoint"))
