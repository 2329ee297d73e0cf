"""Random streams that leave the caller's untouched, in every thread, and seeds derived from other seeds.

`torch.random.fork_rng` won't do: it borrows torch's generator, which all threads of the process share. A stream has
generators of its own, and belongs to the thread that opened it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_MASK64 = 2**64 - 1

_stream: ContextVar[_Stream | None] = ContextVar("random_stream", default=None)
_borrowing = threading.RLock()


@dataclass
class _Stream:
    """Generators of one seed, one for each device that draws numbers."""

    seed: int
    generators: dict[torch.device, torch.Generator] = field(default_factory=dict)

    def on(self, device: torch.device) -> torch.Generator:
        if device not in self.generators:
            self.generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self.generators[device]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Open a random stream for a block of this thread; torch's generators are neither used nor advanced.

    Code of this library draws from `current_generator`. Layers and modules that know nothing of it draw from the
    stream within `new_weights` or `redirected`.
    """
    token = _stream.set(_Stream(seed))
    try:
        yield
    finally:
        _stream.reset(token)


def current_generator(device: torch.device) -> torch.Generator | None:
    """Return the generator to draw from."""
    stream = _stream.get()
    return None if stream is None else stream.on(device)


def new_dropout_seed() -> int:
    """Draw a seed from the stream, so that the seed of a network determines its dropout too."""
    cpu = torch.device("cpu")
    return int(torch.randint(2**62, (), device=cpu, generator=current_generator(cpu)))


@contextmanager
def new_weights() -> Iterator[None]:
    """Within the block, new layers draw their weights from the stream, as float32.

    They do so whatever the caller's default dtype is, which a thread cannot change for itself alone.
    """
    single = nullcontext() if torch.get_default_dtype() == torch.float32 else _Float32()
    with redirected(), single:
        yield


@contextmanager
def redirected() -> Iterator[None]:
    """Within the block, whatever draws random numbers in this thread draws them from the stream of `seeded`."""
    with nullcontext() if _stream.get() is None else _Redirection():
        yield


class _Float32(TorchFunctionMode):
    """Makes new tensors float32 unless a dtype is given."""

    _FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self._FACTORIES and kwargs.get("dtype") is None:
            kwargs = kwargs | {"dtype": torch.float32}
        return func(*args, **kwargs)


class _Redirection(TorchDispatchMode):
    """Gives the stream's generator to every operation that draws random numbers; the numbers equal torch's."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        stream = _stream.get()
        draws = torch.Tag.nondeterministic_seeded in func.tags
        if not draws or stream is None or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        device = _device_of(args, kwargs)
        if device.type == "meta":
            return func(*args, **kwargs)
        if "generator" in [argument.name for argument in func._schema.arguments]:
            variant = func
        else:
            name = "generator" if func._overloadname == "default" else f"{func._overloadname}_generator"
            variant = getattr(func.overloadpacket, name, None)
        if variant is not None:
            return variant(*args, **kwargs, generator=stream.on(device))
        with borrowed(stream.on(device)):
            return func(*args, **kwargs)


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    """The device on which an operation draws numbers: that of its first tensor, or of the tensor to create."""
    for arg in args:
        if isinstance(arg, torch.Tensor):
            return arg.device
    return torch.device(kwargs.get("device") or "cpu")


@contextmanager
def borrowed(generator: torch.Generator) -> Iterator[None]:
    """Replace torch's own generator within the block, for an operation that takes none."""
    device = generator.device
    theirs = torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator
    with _borrowing:
        state = theirs.get_state()
        theirs.set_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(theirs.get_state())
            theirs.set_state(state)


def mixed_bits(*parts: int) -> int:
    """Hash integers into 64 bits that look random, each by splitmix64 (Steele et al., OOPSLA 2014)."""
    state = 0
    for part in parts:
        x = ((state ^ (part & _MASK64)) + 0x9E3779B97F4A7C15) & _MASK64
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
        state = x ^ (x >> 31)
    return state
