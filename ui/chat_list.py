"""The sidebar of the chat page: the list of chats, and the tools for the chat that is open."""

from collections.abc import Callable
from typing import Any

import gradio as gr

from localctx.store.chats import Chat
from localctx.store.store import Store
from localctx.store.transcript import transcript
from localctx.ui.window import AppWindow, Updates

EXPORTS = {"Markdown": ".md", "JSON": ".json"}
_CLICK_DOWNLOAD = "() => document.querySelector('#chat-file').click()"


class ChatList:
    """The sidebar, built inside a gr.Blocks. ``open_chat`` returns updates that show a chat ("": a new one)."""

    def __init__(self, window: AppWindow, open_chat: Callable[[str], Updates]) -> None:
        self._window, self._open_chat = window, open_chat

    def build(self) -> None:
        """Build the list, and the tools: title, versions, export, deletion."""
        small: dict[str, Any] = {"size": "sm", "min_width": 90}
        self.new = gr.Button("New chat", variant="primary", elem_id="new-chat")
        self.chats = gr.Radio([], label="Chats", elem_id="chats", elem_classes="lc-list")
        with gr.Accordion("This chat", open=False, visible=False) as self.tools:
            self.title = gr.Textbox(label="Title", max_lines=1, elem_id="title", submit_btn="Rename")
            self.versions = gr.Dropdown([], label="Versions", elem_id="versions")
            with gr.Row():
                self.exports = [gr.Button(f"Export {kind}", **small) for kind in EXPORTS]
            self.download = gr.DownloadButton("The file", elem_id="chat-file", visible="hidden")
            self.remove = gr.Button("Delete this chat", size="sm", elem_id="delete-chat")
            with gr.Row(visible=False) as self.confirm:
                self.confirm_delete = gr.Button("Delete it", variant="stop", elem_id="delete-chat-yes", **small)
                self.cancel_delete = gr.Button("Keep it", **small)

    @property
    def outputs(self) -> list[Any]:
        """The components that ``show`` updates."""
        return [self.chats, self.tools, self.title, self.versions, self.confirm]

    def wire(self, chat: gr.Textbox, quick: dict[str, Any]) -> None:
        """Connect the components; ``chat`` has the id of the open chat, ``quick`` the arguments of events."""
        self.new.click(lambda: self._open_chat(""), None, **quick)
        self.chats.input(self._open_chat, [self.chats], **quick)
        self.title.submit(self._rename, [chat, self.title], **quick)
        self.versions.input(self._select_branch, [chat, self.versions], **quick)
        for button, kind in zip(self.exports, EXPORTS, strict=True):
            exported = button.click(self._export(kind), [chat], self.download, api_visibility="private")
            exported.then(None, js=_CLICK_DOWNLOAD)
        self.remove.click(lambda: gr.update(visible=True), None, self.confirm, api_visibility="private")
        self.cancel_delete.click(lambda: gr.update(visible=False), None, self.confirm, api_visibility="private")
        self.confirm_delete.click(self._delete, [chat], **quick)

    def show(self, store: Store, opened: Chat | None) -> Updates:
        """Return the list as stored, with this chat open, and its tools."""
        leaves = store.chats.branches(opened.id)[::-1] if opened else []
        return {
            self.chats: gr.update(choices=[(c.title, c.id) for c in store.chats.all()], value=opened and opened.id),
            self.tools: gr.update(visible=opened is not None),
            self.title: opened.title if opened else "",
            self.versions: gr.update(
                choices=[(f"{i}: {_short(m.text)}", m.id) for i, m in enumerate(leaves, 1)],
                value=opened and opened.leaf,
                visible=len(leaves) > 1,
            ),
            self.confirm: gr.update(visible=False),
        }

    def _export(self, kind: str) -> Callable[[str], str]:
        def export(chat: str) -> str:
            with self._window.store() as store:
                exported = store.chats.get(chat)
                file = self._window.download_path(exported.title + EXPORTS[kind])
                file.write_text(transcript(store.chats, exported, kind == "JSON"), encoding="utf-8")
            return str(file)

        return export

    def _rename(self, chat: str, title: str) -> Updates:
        with self._window.store() as store:
            store.chats.rename(chat, title)
        return self._open_chat(chat)

    def _select_branch(self, chat: str, leaf: int) -> Updates:
        with self._window.store() as store:
            store.chats.select(store.chats.message(leaf))
        return self._open_chat(chat)

    def _delete(self, chat: str) -> Updates:
        with self._window.store() as store:
            store.remove_chat(chat)
        return self._open_chat("")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:39]}…"
