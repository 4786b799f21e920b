"""Where a model's files are: a local folder, an installed package, the Hub, or a GGUF file converted once."""

import hashlib
import importlib.util
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import torch
import transformers
from filelock import FileLock

from workers.errors import ModelError
from workers.spec import ModelSpec

PACKAGE = "package:"
FINGERPRINT_BYTES = 2**20


def cache_folder() -> Path:
    """ROPEWALK_CACHE, by default ~/.cache/ropewalk."""
    return Path(os.environ.get("ROPEWALK_CACHE") or Path.home() / ".cache" / "ropewalk")


def locate(spec: ModelSpec) -> str:
    """What `from_pretrained` should be given: a folder, or the Hub id itself.

    Raises:
        ModelError: the package or folder is missing, or holds no such GGUF file.
    """
    place = spec.id
    if place.startswith(PACKAGE):
        name = place.removeprefix(PACKAGE)
        found = importlib.util.find_spec(name) if name.isidentifier() else None
        if found is None or not found.submodule_search_locations:
            raise ModelError("model.id", spec.id, f"{PACKAGE}NAME of a package that is installed here")
        place = found.submodule_search_locations[0]
    elif place.startswith(("/", ".", "~")) and not Path(place).expanduser().is_dir():
        raise ModelError("model.id", spec.id, f"a folder that exists, seen from {Path.cwd()}")
    if Path(place).expanduser().is_dir():
        place = str(Path(place).expanduser())
        if spec.gguf_file is not None and not (Path(place) / spec.gguf_file).is_file():
            files = ", ".join(sorted(p.name for p in Path(place).glob("*.gguf"))) or "none"
            raise ModelError("model.gguf_file", spec.gguf_file, f"a GGUF file in {spec.id} (there: {files})")
    return place


def model_folder(spec: ModelSpec) -> str:
    """As `locate`, with a GGUF file replaced by the folder of its conversion, which is made if it is not there.

    The conversion is keyed by the file's content, the dtype and the version of transformers. Workers that start
    together on one machine wait for the one that converts; a conversion that was cut short leaves nothing behind.
    """
    place = locate(spec)
    if spec.gguf_file is None:
        return place
    path = Path(place) / spec.gguf_file
    if not path.is_file():
        path = Path(_from_hub(spec))
    dtype = "float32" if spec.dtype == "auto" else spec.dtype
    state = path.stat()
    digest = _digest(path, state.st_size, state.st_mtime_ns)[:24]
    folder = cache_folder() / "gguf" / f"{path.stem}-{digest}-{dtype}-{transformers.__version__}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            _convert(path, dtype, folder)
    return str(folder)


@lru_cache
def _digest(path: Path, size: int, modified: int) -> str:
    """SHA-256 of a file of tens of GB, read once per process for as long as size and time of change stay."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _from_hub(spec: ModelSpec) -> str:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return hf_hub_download(spec.id, spec.gguf_file, revision=spec.revision)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError("model.gguf_file", spec.gguf_file, f"a file of the Hub's {spec.id} ({error})") from error


def _convert(path: Path, dtype: str, folder: Path) -> None:
    settings = {"gguf_file": path.name}
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".converting-"))
    try:
        _plain(transformers.AutoModelForCausalLM.from_pretrained(path.parent, dtype=dtype, **settings)).save_pretrained(
            temporary
        )
        transformers.AutoTokenizer.from_pretrained(path.parent, **settings).save_pretrained(temporary)
        temporary.chmod(0o755)
        temporary.replace(folder)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        allowed = f"a GGUF file that transformers can read ({error})"
        raise ModelError("model.gguf_file", str(path.name), allowed) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _plain(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """The same weights in a model that does not count as quantised, which transformers would refuse to save."""
    config = type(model.config).from_dict(
        {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    )
    with torch.device("meta"):
        plain = type(model)(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    return plain


def fingerprint(folder: str, commit: str | None, settings: str) -> str:
    """SHA-256 that tells one set of weights, loaded one way, from any other.

    A local folder is known by its configuration and by name, size, first and last MiB of each weight file, so that
    hundreds of GB need not be read; a Hub model by its id and commit.
    """
    digest = hashlib.sha256(settings.encode())
    path = Path(folder)
    if not path.is_dir():
        digest.update(f"{folder}@{commit}".encode())
        return digest.hexdigest()
    for file in sorted(path.iterdir()):
        if file.name == "config.json" or file.suffix in (".safetensors", ".bin"):
            size = file.stat().st_size
            digest.update(f"{file.name}:{size}:".encode())
            with file.open("rb") as opened:
                digest.update(opened.read(FINGERPRINT_BYTES))
                opened.seek(max(0, size - FINGERPRINT_BYTES))
                digest.update(opened.read())
    return digest.hexdigest()
