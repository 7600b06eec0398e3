"""Buttons below a chat message: show another of its versions, or continue an unfinished answer."""

from collections.abc import Sequence

from localctx.store.chats import Message

PREVIOUS, NEXT = "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}", "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
_KINDS = {"user": "question", "summary": "summary"}

ON_CLICK = """
let wanted = null
const conversation = () => document.querySelector('#conversation')
document.addEventListener('click', event => {
    const button = event.target.closest('#conversation [data-action]')
    if (!button) return
    wanted = button.dataset.key
    trigger('select', { index: 0, value: button.dataset.action })
})
new MutationObserver(() => {  // the conversation is drawn anew: the keyboard stays where it was
    if (!wanted || document.activeElement?.closest('#conversation, #question')) return
    const again = [...document.querySelectorAll('#conversation [data-key]')].find(b => b.dataset.key === wanted)
    const enabled = again?.disabled ? again.parentElement.querySelector('button:enabled') : again
    enabled?.focus({ preventScroll: true })
}).observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ['data-key'] })
document.addEventListener('focusin', event => {
    wanted = event.target.closest('#conversation [data-key]')?.dataset.key || null
})
"""


def below(m: Message, versions: Sequence[int], last: bool) -> str:
    """Return the HTML of a message's buttons; "" if it has none.

    A message with several ``versions`` (ids, in order) gets a choice of them; an unfinished ``last`` answer gets a
    button that continues it.
    """
    go_on = _button("Continue", f"continue {m.id}", f"continue-{m.id}") if last and m.unfinished else ""
    parts = (_choice(m, versions) if len(versions) > 1 else "") + go_on
    return f'<div class="lc-actions">{parts}</div>' if parts else ""


def _choice(m: Message, versions: Sequence[int]) -> str:
    at, kind = list(versions).index(m.id), _KINDS.get(m.role, "answer")
    previous = _step(PREVIOUS, f"Previous version of this {kind}", versions[at - 1] if at else None, m.parent, kind)
    following = versions[at + 1] if at + 1 < len(versions) else None
    after = _step(NEXT, f"Next version of this {kind}", following, m.parent, kind)
    count = f'<span aria-label="version {at + 1} of {len(versions)}">{at + 1}/{len(versions)}</span>'
    return (
        f'<span class="lc-versions" role="group" aria-label="Versions of this {kind}">{previous}{count}{after}</span>'
    )


def _step(sign: str, label: str, version: int | None, parent: int | None, kind: str) -> str:
    more = f' aria-label="{label}" title="{label}"' + (" disabled" if version is None else "")
    return _button(sign, f"version {version}", f"{kind} {parent} {sign}", more)


def _button(text: str, action: str, key: str, more: str = "") -> str:
    return f'<button type="button" data-action="{action}" data-key="{key}"{more}>{text}</button>'
