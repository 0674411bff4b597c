"""Writers of event files."""

from __future__ import annotations

import os
import socket
import time
from datetime import datetime
from typing import Any, NoReturn

import numpy as np
from tensorboard.compat.proto import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
    event_pb2,
)
from tensorboard.summary.writer.event_file_writer import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
    EventFileWriter,
)

from torchlike.utils.tensorboard import summary

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """Writes events to a file in a folder.

    Args:
        log_dir: the folder.
        max_queue: how many events wait at most.
        flush_secs: after how many seconds they are written.
        filename_suffix: the end of the file's name.
    """

    def __init__(
        self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""
    ) -> None:
        self._log_dir = str(log_dir)
        self.event_writer = EventFileWriter(self._log_dir, max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return self._log_dir

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Writes an event, with the time and the step."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(
        self, summary: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Writes a summary."""
        self.add_event(event_pb2.Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Writes what waits."""
        self.event_writer.flush()

    def close(self) -> None:
        """Ends the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Goes on after `close`."""
        self.event_writer.reopen()


def _refused(name: str) -> NoReturn:
    raise NotImplementedError(
        f"torch.utils.tensorboard.SummaryWriter.{name} is not supported by torchlike"
    )


class SummaryWriter:
    """Writes what a training run says: numbers, histograms, pictures, words.

    Args:
        log_dir: the folder; by default one in `runs`, by the time and the host.
        comment: the end of that name.
        purge_step: events of an earlier run from this step on are forgotten.
        max_queue, flush_secs, filename_suffix: as for `FileWriter`.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = log_dir
        self.purge_step = purge_step
        self._options = (max_queue, flush_secs, filename_suffix)
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[Any, FileWriter] | None = None
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """The file, which is begun anew after `close`."""
        if self.file_writer is None or self.all_writers is None:
            made = self.file_writer = FileWriter(self.log_dir, *self._options)
            self.all_writers = {made.get_logdir(): made}
            if self.purge_step is not None:
                start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                made.add_event(event_pb2.Event(step=self.purge_step, file_version="brain.Event:2"))
                made.add_event(event_pb2.Event(step=self.purge_step, session_log=start))
                self.purge_step = None
        return self.file_writer

    def _add(self, made: Any, step: Any, walltime: float | None) -> None:
        self._get_file_writer().add_summary(made, step, walltime)

    def get_logdir(self) -> str:
        """The folder."""
        return str(self.log_dir)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """A number."""
        made = summary.scalar(tag, scalar_value, new_style, double_precision)
        self._add(made, global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: dict[str, Any],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers in one chart, each in a file of its own."""
        walltime = time.time() if walltime is None else walltime
        folder = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            path = f"{folder}/{main_tag.replace('/', '_')}_{tag}"
            if path not in self.all_writers:
                self.all_writers[path] = FileWriter(path, *self._options)
            made = summary.scalar(main_tag, value)
            self.all_writers[path].add_summary(made, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """All numbers of a tensor."""
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How the values of a tensor are spread."""
        made = summary.histogram(tag, values, bins, max_bins)
        self._add(made, global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: float,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that is there already.

        Raises:
            ValueError: without a limit for every count.
        """
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        made = summary.histogram_raw(
            tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._add(made, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture."""
        self._add(summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Pictures, side by side."""
        self._add(summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A figure of Matplotlib, or several."""
        figures = figure if isinstance(figure, list) else [figure]
        drawn = []
        for f in figures:
            f.canvas.draw()
            drawn.append(np.asarray(f.canvas.buffer_rgba()).copy())
            if close:
                from matplotlib import pyplot  # type: ignore[import-untyped,import-not-found,unused-ignore]

                pyplot.close(f)
        pixels = np.stack(drawn) if isinstance(figure, list) else drawn[0]
        order = "NHWC" if isinstance(figure, list) else "HWC"
        self._add(summary.image(tag, pixels, order), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Words."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """What a run was made with, and what came of it, in a folder of its own.

        Raises:
            TypeError: if they are no dictionaries.
            NotImplementedError: with `hparam_domain_discrete`.
        """
        from tensorboard.plugins.hparams import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            summary_v2,
        )

        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        if hparam_domain_discrete:
            _refused("add_hparams(hparam_domain_discrete=...)")
        plain = {k: v if isinstance(v, str | bool) else float(v) for k, v in hparam_dict.items()}
        folder = os.path.join(self.get_logdir(), run_name or str(time.time()))
        with SummaryWriter(folder) as run:
            run._add(
                summary_v2.hparams_config_pb(
                    hparams=[summary_v2.HParam(k) for k in plain],
                    metrics=[summary_v2.Metric(k) for k in metric_dict],
                ),
                None,
                None,
            )
            run._add(summary_v2.hparams_pb(plain), None, None)
            for k, v in metric_dict.items():
                run.add_scalar(k, v, global_step)

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> NoReturn:
        """Not supported."""
        _refused("add_graph")

    def add_image_with_boxes(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        _refused("add_image_with_boxes")

    def add_video(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        _refused("add_video")

    def add_audio(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        _refused("add_audio")

    def add_onnx_graph(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        _refused("add_onnx_graph")

    def add_embedding(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        _refused("add_embedding")

    def add_pr_curve(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        _refused("add_pr_curve")

    def add_pr_curve_raw(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        _refused("add_pr_curve_raw")

    def add_custom_scalars(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        _refused("add_custom_scalars")

    def add_mesh(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported."""
        _refused("add_mesh")

    def flush(self) -> None:
        """Writes what waits."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Ends the files; another event begins new ones."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
