"""From a forward module to one whole training step: autodiff, optimizer and the clean-ups, in this order."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rhino.ir.collector import collector_paused
from rhino.ir.optimizers import Optimizer
from rhino.passes.autodiff import differentiate
from rhino.passes.canonicalize import CanonicalizePass
from rhino.passes.cse import CsePass
from rhino.passes.dce import DcePass
from rhino.passes.fold_constants import FoldConstantsPass
from rhino.passes.optimizer import add_optimizer


def clean(module: ModuleOp) -> None:
    """Fold, canonicalize, CSE and DCE a global-stage module in place."""
    ctx = Context()
    for cleanup in (FoldConstantsPass(), CanonicalizePass(), CsePass(), DcePass()):
        cleanup.apply(ctx, module)


@collector_paused()
def training_step(forward: ModuleOp, optimizer: Optimizer, *, keep_gradients: bool = False) -> ModuleOp:
    """A training step for a forward module; the argument is left as it was.

    Raises ProgramError when the module has no scalar loss or no parameters.
    """
    module = forward.clone()
    differentiate(module)
    add_optimizer(module, optimizer, keep_gradients=keep_gradients)
    clean(module)
    module.verify()
    return module
