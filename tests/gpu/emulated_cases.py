"""Small batches that take each way through LossyAccept, for what is slow on the emulator; as a program it runs them."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from draftsmith.plugins.kernel_library import KernelLibrary

from tests.gpu.accept_cases import RULES, TRUNCATIONS, AcceptCase, check, random_case, relaxed
from tests.gpu.accept_device import DeviceAccept
from tests.gpu.machines import Emulated

EMULATED_VARIABLE = "DRAFTSMITH_EMULATED_KERNELS"

_MODES = ({"shared_noise": True}, {"shared_noise": False}, {"temperature": 0.0})
_EVERY_RULE = [
    {"rule": rule, "first": first, "second": second, **mode} for rule, first, second in RULES for mode in _MODES
]
_CAPPED = [{**given, "kl_cap": 0.3, "recovery_limit": 0.3, "recovery_state": 2} for given in _EVERY_RULE]
_WIDE = [{"shared_noise": shared, **given} for shared in (False, True) for given in ({"top_p": 0.97}, {"top_k": 5000})]


def small_cases() -> dict[str, AcceptCase]:
    rules = random_case(
        40, requests=2 * len(_EVERY_RULE), nodes=4, vocab=2051, logits_type="float16", choices=_EVERY_RULE
    )
    capped = random_case(41, requests=len(_CAPPED), nodes=4, vocab=1500, logits_type="bfloat16", choices=_CAPPED)
    sampled = random_case(
        42, requests=len(RULES) * 2, nodes=3, vocab=1500, logits_type="float32", sampled=True, num_candidates=200
    )
    cut = random_case(
        43, requests=2 * len(TRUNCATIONS), nodes=2, vocab=5003, logits_type="float16", choices=TRUNCATIONS
    )
    wide = random_case(44, requests=len(_WIDE), nodes=2, vocab=30011, logits_type="float16", peak=0.0, choices=_WIDE)
    return {
        "rules": rules,
        "relaxed": relaxed(capped, 1),
        "sampled": sampled,
        "cut": cut,
        "wide": wide,
        "equal": replace(wide, logits=np.zeros_like(wide.logits)),
    }


if __name__ == "__main__":
    machine = Emulated(KernelLibrary(Path(os.environ[EMULATED_VARIABLE])))
    for case in small_cases().values():
        device = DeviceAccept(machine, case)
        device.launch()
        check(case, device.read())
