"""Whether the compute threads of a loaded model have processors to lend to other work of the process."""

from __future__ import annotations

from ferrum.assembly.loaded_model import LoadedModel
from ferrum.assembly.model_loading import PlanModel
from ferrum.core.processor_loans import ProcessorLoans
from ferrum.runtimes.native import NativeRuntime


def processor_loans(model: LoadedModel | None) -> ProcessorLoans:
    """Loans of one processor where there is a compute thread for each, else of none."""
    if not isinstance(model, PlanModel) or not isinstance(model.runtime, NativeRuntime):
        return ProcessorLoans()
    is_lendable = model.threads.count > 1 and model.threads.num_spare == 0
    return ProcessorLoans(1 if is_lendable else 0, model.runtime.thread_places)
