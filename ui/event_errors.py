"""What a person at the window is told when an event fails: one line, and nothing on the terminal."""

from typing import Any

import gradio as gr

from localctx.errors import Cancelled
from localctx.ui.job_events import error_text


def tell_in_one_line(page: gr.Blocks) -> None:
    """Have events of the ``page`` that fail, in a handler or before it, told in one line. Errors that nobody foresaw
    are logged. Called where the page is built.
    """
    process: Any = page.process_api

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

    page.process_api = process_api  # type: ignore[method-assign]
