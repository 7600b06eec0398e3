"""Shows one line in the window when an event handler fails. Nothing is printed on the terminal."""

from typing import Any

import gradio as gr

from localctx.error_log import log_error
from localctx.errors import Cancelled
from localctx.ui.job_events import error_text
from localctx.ui.malformed_requests import NOT_UNDERSTOOD, note_misread


def tell_in_one_line(page: gr.Blocks) -> None:
    """Show one line for each event of the ``page`` that fails, whether in gradio's preprocessing or in the handler.

    Unexpected errors are logged. Call this while the page is being built.
    """
    process: Any = page.process_api
    preprocess: Any = page.preprocess_data

    async def preprocess_data(*args: Any, **kwargs: Any) -> Any:
        try:
            return await preprocess(*args, **kwargs)
        except Exception as e:  # components may raise any exception for values that they never send themselves
            log_error(e)
            note_misread()
            raise gr.Error(NOT_UNDERSTOOD, print_exception=False) from None

    async def process_api(*args: Any, **kwargs: Any) -> Any:
        try:
            return await process(*args, **kwargs)
        except gr.Error as e:
            e.print_exception = False
            raise
        except Cancelled as e:
            raise gr.Error("stopped", print_exception=False) from e
        except Exception as e:
            raise gr.Error(error_text(e), print_exception=False) from None

    page.preprocess_data = preprocess_data  # type: ignore[method-assign]
    page.process_api = process_api  # type: ignore[method-assign]
