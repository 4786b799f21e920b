"""The `model:` and `workers:` sections of a campaign."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

SMALLEST_SHARE = 0.0001  # of a CPU or GPU, that Ray can give out


def _share(value: float) -> float:
    if 0 < value < SMALLEST_SHARE:
        raise ValueError(f"0, or at least {SMALLEST_SHARE:f}".rstrip("0"))
    return value


def _gpus(value: float) -> float:
    if value > 1 and not value.is_integer():
        raise ValueError("a whole number, or a part of one GPU")
    return value


def _switch(value: object) -> object:
    """YAML reads a bare `on` or `off` as a truth value."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


Switch = Annotated[Literal["auto", "on", "off"], BeforeValidator(_switch)]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_share)]


class ModelSpec(BaseModel):
    """Which weights to load and how.

    Attributes:
        id: a Hub id, a local folder (relative to the working directory), or `package:NAME` for the folder of an
            installed Python package that ships weights. The package is located, not imported.
        gguf_file: a file in that folder or repository; it is de-quantised once per machine and cached.
        dtype: `auto` takes the checkpoint's own (float32 for GGUF).
        device_map: as in transformers, e.g. `auto` to spread a model over all GPUs that the worker sees. By default
            the worker's first GPU, or the CPU.
        attn_implementation: as in transformers; by default its choice (SDPA).
        chat_template: whether questions are asked in a turn of the model's chat template: on, off, or auto, which is on
            for instruct models alone (`fitness.chat.chosen` says how they are known).
        trust_remote_code: run model code from the Hub. Off unless the campaign says so.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1)
    revision: str | None = None
    gguf_file: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device_map: str | dict[str, int | str] | None = None
    attn_implementation: str | None = None
    chat_template: Switch = "auto"
    trust_remote_code: bool = False

    @property
    def called(self) -> str:
        """The name that says what kind of model it is: that of its file, else its id."""
        return self.gguf_file or self.id


class PoolSpec(BaseModel):
    """How many workers and what each of them gets.

    Attributes:
        kind: `ray` for actors on a cluster, `local` for the model in this process.
        actors: workers, each with the whole model.
        cpus_per_actor, gpus_per_actor: Ray resources of one worker; without GPUs it computes on the CPU.
        threads: torch threads of one worker; by default its CPUs, at least 1.
        chunk: tokens of a context per forward pass; by default the whole context in one.
        address: of a running Ray cluster; by default the one this job or RAY_ADDRESS belongs to, else a local one is
            started on loopback and stopped at the end.
        max_retries: how often work that a worker died on is given to another one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["ray", "local"] = "ray"
    actors: int = Field(1, ge=1, le=4096)
    cpus_per_actor: Share = 1
    gpus_per_actor: Annotated[Share, AfterValidator(_gpus)] = 0
    threads: int | None = Field(None, ge=1)
    chunk: int | None = Field(None, ge=1)
    address: str | None = None
    max_retries: int = Field(2, ge=0)

    @property
    def threads_per_actor(self) -> int:
        return self.threads or max(1, int(self.cpus_per_actor))
