"""Options of DxDispatch that are taken, and mean nothing on a CPU: what there is to say of each."""

from __future__ import annotations

from anydml.dataclass import dataclass


@dataclass(frozen=True)
class NoEffect:
    """An option: its names, why nothing happens, and whether it takes a value, again and again."""

    names: tuple[str, ...]
    why: str
    takes_value: bool = False
    multiple: bool = False


_NO_GPU = "there is no Direct3D 12 device; everything runs on the CPU"
_NO_SHADERS = "there are no shaders; kernels are this machine's code"
_NO_PIX = "PIX captures what Direct3D 12 does"
_NO_SESSION = "ONNX models run without a session of onnxruntime's DirectML provider"

NO_EFFECT = (
    NoEffect(("--show_dependencies", "-S"), "no DirectX component is used"),
    NoEffect(("--max_gpu_time_measurements",), "there is no GPU whose time could be measured", True),
    NoEffect(("--debug", "-d"), "the debug layers are Direct3D's; every model is checked here"),
    NoEffect(("--adapter", "-a"), _NO_GPU, True),
    NoEffect(("--queue_type", "-q"), _NO_GPU, True),
    NoEffect(("--disable_custom_heaps",), "buffers are plain memory, in no heap of Direct3D's"),
    NoEffect(("--clear_shader_caches",), _NO_SHADERS),
    NoEffect(("--disable_gpu_timeout",), "nothing times out on the CPU"),
    NoEffect(("--enable_dred",), _NO_GPU),
    NoEffect(("--disable_background_processing",), _NO_GPU),
    NoEffect(("--set_stable_power_state",), "the clock rate is the system's affair"),
    NoEffect(("--disable_agility_sdk",), "D3D12Core.dll is not used"),
    NoEffect(("--print_hlsl_disassembly",), f"{_NO_SHADERS}, which --emit asm prints"),
    NoEffect(("--post_dispatch_barriers",), "a dispatch has ended when the next one begins", True),
    NoEffect(("--xbox_allow_precompile",), _NO_SHADERS),
    NoEffect(("--pix_capture_type", "-c"), _NO_PIX, True),
    NoEffect(("--pix_capture_name",), _NO_PIX, True),
    NoEffect(("--present_separator",), "nothing is presented"),
    NoEffect(("--onnx_session_config_entry", "-e"), _NO_SESSION, True, True),
    NoEffect(("--onnx_graph_optimization_level", "-l"), _NO_SESSION, True),
    NoEffect(("--onnx_logging_level", "-L"), _NO_SESSION, True),
    NoEffect(("--print_onnx_bindings", "-p"), "anydml inspect shows a model's inputs and outputs"),
    NoEffect(("--enable_ort_extensions", "-x"), _NO_SESSION),
    NoEffect(("--enable_onnx_profiling",), f"{_NO_SESSION}; anydml run --explain tells what ran where"),
)
