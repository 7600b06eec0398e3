"""Builds the sidebar of the chat page: the search for chats, and the list of chats, each with a menu."""

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
from localctx.ui.window import EVENT_OPTIONS, AppWindow, Updates

EXPORTS = {"Markdown": ".md", "JSON": ".json"}
STAYS = "Its documents stay in the library, and what was read of them is kept."
_CLICK_DOWNLOAD = "file => { if (file) document.querySelector('#chat-file').click() }"


class ChatList:
    """The sidebar with the list of chats, built inside a gr.Blocks.

    ``open_chat`` returns updates that show the chat with an id, or a new chat for "".
    """

    def __init__(self, window: AppWindow, open_chat: Callable[[str], Updates]) -> None:
        self._window, self._open_chat = window, open_chat
        self.opened = list[Any]()  # events after which another chat is shown
        self.undo = UndoLine("undo-chat")

    def build(self) -> None:
        """Build the search and the list."""
        self.new = gr.Button("New chat", elem_id="new-chat")
        gr.HTML("", elem_id="tabs-place")  # frame.css places the tabs here
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
        self.download = gr.DownloadButton("The file", elem_id="chat-file")  # invisible; a script clicks this button

    @property
    def outputs(self) -> list[Any]:
        """The components that ``show`` updates."""
        return [self.chats, *self.undo.outputs]

    def wire(self, chat: gr.Textbox, quick: dict[str, Any]) -> None:
        """Connect the components to their events.

        ``chat`` has the id of the open chat. ``quick`` has the arguments for events that update every component of the
        page.
        """
        self.opened = [self.new.click(lambda: self._open_chat(""), None, **quick)]
        self.opened.append(self.chats.select(self._open_chosen, None, **quick))
        self.search.change(self._find, [self.search], [self.found], trigger_mode="always_last", **EVENT_OPTIONS)
        opening = quick | {"outputs": [self.search, self.found, *quick["outputs"]]}
        self.search.submit(self._open_first, [self.search], **opening)
        self.opened.append(self.found.select(self._open_found, None, **opening))
        self.answering.change(**self.listing(chat))
        self.chats.edit(self._edit, [chat], **quick)
        exported = self.chats.download(self._export, None, **quick | {"outputs": [self.download, *quick["outputs"]]})
        exported.success(None, self.download, js=_CLICK_DOWNLOAD)
        self.undo.button.click(self._restore, [self.undo.deletions], **quick)

    def show(self, store: Store, opened: Chat | None) -> Updates:
        """Returns updates that show the list of stored chats, with ``opened`` marked as open (None: no chat)."""
        return {
            self.chats: chat_groups.chat_list(
                store.chats.all(), opened.id if opened else None, self._window.answers.chats
            ),
            **self.undo.hidden,
        }

    def listing(self, chat: gr.Textbox) -> dict[str, Any]:
        """Returns the arguments of an event that redraws the list. ``chat`` has the id of the open chat."""
        return {"fn": self._list, "inputs": [chat], "outputs": [self.chats], **EVENT_OPTIONS}

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

    def _export(self, chosen: gr.SelectData) -> Updates:
        """Write a chat to a file in the chosen format for download, or show that it was deleted."""
        kind, chat = str(chosen.value).split()
        with self._window.store() as store, suppress(ChatError):
            exported = store.chats.get(chat)
            file = self._window.download_path(exported.title + EXPORTS[kind])
            file.write_text(transcript(store.chats, exported, kind == "JSON"), encoding="utf-8")
            return {self.download: str(file)}
        return self._open_chat(chat) | {self.download: None}

    def _edit(self, opened: str, chosen: gr.SelectData) -> Updates:
        """Rename or delete a chat, and show the open chat again."""
        action, _, rest = str(chosen.value).partition(" ")
        chat, _, title = rest.partition("\n")
        if action == "delete":
            return self._delete(opened, chat)
        with self._window.store() as store, suppress(ChatError):  # the chat was deleted in another tab
            store.chats.rename(chat, title)
        return self._open_chat(opened)

    def _delete(self, opened: str, chat: str) -> Updates:
        shown = "" if chat == opened else opened
        try:
            deletions = self._window.delete("chat", [chat])
        except StoreError:  # the chat was deleted in another tab
            return self._open_chat(shown)
        return self._open_chat(shown) | self.undo.show(deletions, STAYS)

    def _restore(self, deletions: str) -> Updates:
        with self._window.store() as store:
            items = [d.item for d in store.deletions.all() if str(d.id) in deletions.split()]
            line = restored_line(store, list(map(int, deletions.split())))
        if not items:  # the chat was deleted for good meanwhile
            return {self.undo.line: line}
        return self._open_chat(items[0])
