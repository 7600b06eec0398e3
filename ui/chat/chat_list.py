"""Builds the sidebar of the chat page: the list of chats, and the tools for the open chat."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gradio as gr

from localctx.errors import ChatError, StoreError
from localctx.store.chat_search import find_chats
from localctx.store.chats import Chat
from localctx.store.store import Store
from localctx.store.transcript import transcript
from localctx.ui.chat import chat_groups
from localctx.ui.undo import UndoLine, restored_line
from localctx.ui.window import AppWindow, Updates

EXPORTS = {"Markdown": ".md", "JSON": ".json"}
STAYS = "Its documents stay in the library, and what was read of them is kept."
_CLICK_DOWNLOAD = "file => { if (file) document.querySelector('#chat-file').click() }"


class ChatList:
    """The sidebar, built inside a gr.Blocks.

    ``open_chat`` returns updates that show the chat with an id, or a new chat for "".
    """

    def __init__(self, window: AppWindow, open_chat: Callable[[str], Updates]) -> None:
        self._window, self._open_chat = window, open_chat
        self.opened = list[Any]()  # events after which another chat is shown
        self.undo = UndoLine("undo-chat")

    def build(self) -> None:
        """Build the search, the list and the tools: title, export, summaries, deletion."""
        small: dict[str, Any] = {"size": "sm", "min_width": 90}
        self.new = gr.Button("New chat", elem_id="new-chat")
        gr.HTML("", elem_id="tabs-place")  # the tabs stand here, put there by frame.css
        self.undo.build()
        self.search = gr.Textbox(
            "",
            show_label=False,
            label="Search chats",
            placeholder="Search chats",
            elem_id="chat-search",
            max_lines=1,
        )
        self.found = gr.HTML("", elem_id="chats-found", js_on_load=chat_groups.ON_CLICK)
        self.chats = gr.HTML("", elem_id="chats", js_on_load=chat_groups.ON_CLICK)
        self.answering = gr.Textbox("", visible=False)  # changes when an answer begins or ends
        with gr.Accordion("This chat", open=False, visible=False) as self.tools:
            self.title = gr.Textbox(label="Title", max_lines=1, elem_id="title", submit_btn="Rename")
            with gr.Row():
                self.exports = [gr.Button(f"Export {kind}", **small) for kind in EXPORTS]
            self.download = gr.DownloadButton("The file", elem_id="chat-file")  # invisible: a script clicks it
            self.summarize = gr.Button("Summarize its documents", size="sm", elem_id="summarize-documents")
            self.remove = gr.Button("Delete this chat", size="sm", elem_id="delete-chat")

    @property
    def outputs(self) -> list[Any]:
        """The components that ``show`` updates."""
        return [self.chats, self.tools, self.title, *self.undo.outputs]

    def wire(self, chat: gr.Textbox, quick: dict[str, Any]) -> None:
        """Connect the components.

        ``chat`` has the id of the open chat; ``quick`` has arguments for events whose outputs are all components of the
        page.
        """
        self.opened = [self.new.click(lambda: self._open_chat(""), None, **quick)]
        self.opened.append(self.chats.select(self._open_chosen, None, **quick))
        private: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        self.search.change(self._find, [self.search], [self.found], trigger_mode="always_last", **private)
        opening = quick | {"outputs": [self.search, self.found, *quick["outputs"]]}
        self.search.submit(self._open_first, [self.search], **opening)
        self.opened.append(self.found.select(self._open_found, None, **opening))
        self.answering.change(**self.listing(chat))
        self.title.submit(self._rename, [chat, self.title], **quick)
        for button, kind in zip(self.exports, EXPORTS, strict=True):
            outputs = [self.download, *quick["outputs"]]
            exported = button.click(self._export(kind), [chat], **quick | {"outputs": outputs})
            exported.success(None, self.download, js=_CLICK_DOWNLOAD)
        self.remove.click(self._delete, [chat], **quick)
        self.undo.button.click(self._restore, [self.undo.deletions], **quick)

    def show(self, store: Store, opened: Chat | None) -> Updates:
        """Returns updates that show the stored list with this chat open, and its tools."""
        return {
            self.chats: chat_groups.chat_list(
                store.chats.all(), opened.id if opened else None, self._window.answers.chats
            ),
            self.tools: gr.update(visible=opened is not None),
            self.title: opened.title if opened else "",
            **self.undo.hidden,
        }

    def listing(self, chat: gr.Textbox) -> dict[str, Any]:
        """Returns the arguments of an event that redraws the list. ``chat`` has the id of the open chat."""
        private: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        return {"fn": self._list, "inputs": [chat], "outputs": [self.chats], **private}

    def _list(self, opened: str) -> str:
        with self._window.store() as store:
            return chat_groups.chat_list(store.chats.all(), opened, self._window.answers.chats)

    def _open_chosen(self, chosen: gr.SelectData) -> Updates:
        return self._open_chat(str(chosen.value))

    def _find(self, words: str) -> str:
        with self._window.store() as store:
            return chat_groups.found_chats(find_chats(store.db, store.chats, words), words)

    def _open_first(self, words: str) -> Updates:
        with self._window.store() as store:
            found = find_chats(store.db, store.chats, words, 1)
        return self._open_chat(found[0].chat.id) | self._search_ended if found else gr.skip()

    def _open_found(self, chosen: gr.SelectData) -> Updates:
        return self._open_chosen(chosen) | self._search_ended

    @property
    def _search_ended(self) -> Updates:
        return {self.search: "", self.found: ""}

    def _export(self, kind: str) -> Callable[[str], Updates]:
        def export(chat: str) -> Updates:
            try:
                with self._window.store() as store:
                    exported = store.chats.get(chat)
                    file = self._window.download_path(exported.title + EXPORTS[kind])
                    file.write_text(transcript(store.chats, exported, kind == "JSON"), encoding="utf-8")
            except ChatError:
                return self._open_chat(chat) | {self.download: None}
            return {self.download: str(file)}

        return export

    def _rename(self, chat: str, title: str) -> Updates:
        with self._window.store() as store, suppress(ChatError):  # showing the chat reports its deletion
            store.chats.rename(chat, title)
        return self._open_chat(chat)

    def _delete(self, chat: str) -> Updates:
        try:
            deletions = self._window.delete("chat", [chat])
        except StoreError:  # it was deleted in another tab
            return self._open_chat("")
        return self._open_chat("") | self.undo.show(deletions, STAYS)

    def _restore(self, deletions: str) -> Updates:
        with self._window.store() as store:
            items = [d.item for d in store.deletions.all() if str(d.id) in deletions.split()]
            line = restored_line(store, list(map(int, deletions.split())))
        if not items:  # it was deleted for good meanwhile
            return {self.undo.line: line}
        return self._open_chat(items[0])
