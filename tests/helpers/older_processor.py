"""The instructions of an older processor, and questions whose answers are compared."""

QUESTIONS = ("How long is river 7?", "And river 3, of which we heard before?", "Which is the longest of all?")


AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+sse4.2,+popcnt,+lzcnt,+movbe",
}
