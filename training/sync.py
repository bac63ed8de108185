"""New weights into a running vLLM server, behind one interface.

DiskReload   a safetensors file that the server reads: works everywhere, 0.3 to 2 s for a small model
Nccl         from GPU to GPU through TRL's own client (not run here: it needs a GPU; written against TRL 1.16)
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import AutoConfig

from envs.errors import InfraError
from training import rest

_INPUT, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"

Weights = Iterable[tuple[str, torch.Tensor]]
"""(name as in the Hugging Face model, tensor)."""


class SyncFailed(InfraError):
    """The server may have the old weights, the new ones or a mixture."""

    def __init__(self, message: str, *, touched: bool = False) -> None:
        super().__init__(message)
        self.touched = touched
        """The server was at it: it may hang, or hold half of the weights, and has to be started again."""


class WeightSync(Protocol):
    folder: Path | None
    """A model folder with the weights of the last push, to start a server with again; None = there is none."""

    def push(self, url: str, weights: Weights) -> None:
        """Load the weights into the server at `url`; returns when it samples with them. SyncFailed otherwise."""
        ...


class DiskReload:
    """Writes a whole model folder for each push, so that none is changed under a server that reads it."""

    def __init__(self, base: Path, scratch: Path, timeout_s: float) -> None:
        """`base` gives configuration, tokenizer and the names of the weights; `scratch` holds one or two copies."""
        self.folder: Path | None = base
        self._base, self._scratch, self._timeout_s = base, scratch, timeout_s
        self._numbers = count()

    def push(self, url: str, weights: Weights) -> None:
        old, new = self.folder, self.write(weights)
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(new)}}
        try:
            _ask(f"{url}/collective_rpc", body, self._timeout_s)
            reset_cache(url, self._timeout_s)
        except SyncFailed:
            shutil.rmtree(new, ignore_errors=True)
            raise
        self.folder = new
        if old and old.parent == self._scratch:
            shutil.rmtree(old, ignore_errors=True)

    def write(self, weights: Weights) -> Path:
        """A fresh model folder with these weights. SyncFailed if they are not the model's, or the disk is full."""
        folder = self._scratch / f"weights-{next(self._numbers)}"
        try:
            self._write(folder, weights)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError | SafetensorError):
                raise SyncFailed(f"the weights could not be written to {folder}: {error}; free space") from error
            raise
        return folder

    def _write(self, folder: Path, weights: Weights) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path in self._base.iterdir():
            if path.is_file() and not _holds_weights(path):
                shutil.copyfile(path, folder / path.name)
        tensors = _plain(weights)
        _check(tensors, shapes(self._base))
        tied = AutoConfig.from_pretrained(self._base).get_text_config().tie_word_embeddings
        save_file(_untied(tensors) if tied else tensors, folder / "model.safetensors", metadata={"format": "pt"})


class Nccl:
    """Streams the weights over NCCL; the server was started with `--weight-transfer-config '{"backend": "nccl"}'`."""

    folder: Path | None = None

    def __init__(self, group_port: int, timeout_s: float) -> None:
        self._group_port, self._timeout_s = group_port, timeout_s
        self._client: Any = None
        self._url = ""

    def push(self, url: str, weights: Weights) -> None:
        problems: list[BaseException] = []

        def work() -> None:
            try:
                self._push(url, list(weights))
            except BaseException as error:
                problems.append(error)

        # In a thread, for NCCL waits without end for a peer that is gone, and takes no deadline itself.
        thread = threading.Thread(target=work, daemon=True, name="nccl weight sync")
        thread.start()
        thread.join(self._timeout_s)
        if thread.is_alive():
            raise SyncFailed(f"NCCL gave no answer within train.engine.sync_s = {self._timeout_s:g} s", touched=True)
        if problems:
            self._client = None
            raise SyncFailed(f"NCCL weight sync: {problems[0]}", touched=True) from problems[0]

    def _push(self, url: str, weights: list[tuple[str, torch.Tensor]]) -> None:
        if self._client is None or url != self._url:
            from trl.generation.vllm_client import VLLMClient

            self._client = VLLMClient(url, group_port=self._group_port, connection_timeout=self._timeout_s)
            self._client.init_communicator(device=torch.cuda.current_device())
            self._url = url
        metadata = [(name, str(weight.dtype).removeprefix("torch."), list(weight.shape)) for name, weight in weights]
        self._client.update_named_params(metadata, iter(weights))
        self._client.reset_prefix_cache()


def reset_cache(url: str, timeout_s: float) -> None:
    """Forget the keys and values that the old weights made."""
    answer = _ask(f"{url}/reset_prefix_cache", {}, timeout_s)
    if isinstance(answer, dict) and answer.get("success") is False:
        raise SyncFailed("the server did not forget its prefix cache: requests are still running; await them first")


def shapes(folder: Path) -> dict[str, list[int]]:
    """{name: shape} of all weights in the folder's safetensors files."""
    found: dict[str, list[int]] = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    return found


def _check(tensors: dict[str, torch.Tensor], wanted: dict[str, list[int]]) -> None:
    """vLLM only warns of what is missing, and breaks on another shape."""
    wrong = [
        name
        for name, shape in wanted.items()
        if name != _OUTPUT and (name not in tensors or list(tensors[name].shape) != shape)
    ]
    if wrong:
        raise SyncFailed(f"{len(wrong)} of the model's weights are missing or of another shape, for example {wrong[0]}")


def _plain(weights: Weights) -> dict[str, torch.Tensor]:
    """As safetensors takes them: on the CPU, contiguous, no two in the same memory."""
    tensors: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, weight in weights:
        plain = weight.detach().to("cpu").contiguous()
        tensors[name] = plain.clone() if plain.data_ptr() in seen else plain
        seen.add(plain.data_ptr())
    return tensors


def _untied(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With an output layer of its own.

    vLLM keeps a repacked copy of it on a CPU, which a reload renews only from weights under its own name: without
    them, a model with tied embeddings would go on writing with its old ones.
    """
    if _OUTPUT in tensors or _INPUT not in tensors:
        return tensors
    return {**tensors, _OUTPUT: tensors[_INPUT].clone()}


def _holds_weights(path: Path) -> bool:
    return path.suffix in (".safetensors", ".bin", ".gguf", ".pt") or path.name.endswith(".index.json")


def _ask(url: str, body: dict[str, Any], timeout_s: float) -> Any:
    try:
        return rest.post(url, body, timeout_s)
    except rest.ServerError as error:
        raise SyncFailed(f"weight sync (train.engine.sync_s = {timeout_s:g}): {error}", touched=True) from None
