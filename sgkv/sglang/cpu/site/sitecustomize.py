"""Python runs this at start in every process that has this folder on PYTHONPATH.

SGLang spawns its scheduler and detokenizer, and `import sglang` fails without triton: so the
stand-ins must be there before any of its code runs, in each process.
"""

import os

if os.environ.get("SGKV_SGLANG_STAND_INS") == "1":
    from sgkv.sglang.cpu.stand_ins import install_stand_ins

    install_stand_ins()
