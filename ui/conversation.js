// The conversation: actions at messages, editing in place, copying, and what is in view. `element` is its HTML component.
const conversation = () => document.querySelector('#conversation')
const act = (value) => {
  follows = true
  trigger('select', { index: 0, value })
}

document.addEventListener('click', (event) => {
  const button = event.target.closest(':is(#conversation, #suggestions) :is([data-action], [data-do], [data-asks])')
  if (!button) return
  wanted = button.dataset.key
  if (button.dataset.action) act(button.dataset.action)
  else if (button.dataset.asks) ask(button.dataset.asks)
  else if (button.dataset.do === 'copy') copy(button)
  else if (button.dataset.do === 'edit') edit(button)
  else if (button.dataset.do === 'open') document.querySelector('#question input[type=file]')?.click()
})

// A suggested question is asked as if it were typed, about the files in the question box.
function ask(text) {
  const box = document.querySelector('#question textarea')
  box.value = text
  box.dispatchEvent(new InputEvent('input', { bubbles: true }))
  setTimeout(() => document.querySelector('#question .submit-button:enabled')?.click())
}

async function copy(button) {
  try { await navigator.clipboard.writeText(button.dataset.text) } catch { copyOld(button.dataset.text) }
  button.classList.add('lc-copied')
  setTimeout(() => button.classList.remove('lc-copied'), 1500)
}

// Browsers have no clipboard for pages of another machine without TLS, but still copy what is selected.
function copyOld(text) {
  const box = document.createElement('textarea')
  box.value = text
  document.body.append(box)
  box.select()
  document.execCommand('copy')
  box.remove()
}

// A question is on screen at once; what the server says of it takes its place.
const asked = document.createElement('div')
asked.className = 'lc-question lc-sent'
asked.innerHTML = '<div class="lc-asked"></div>'
const showSent = (event) => {
  const box = document.querySelector('#question textarea'), button = event.target.closest('#question .submit-button')
  const enter = event.key === 'Enter' && !event.shiftKey && !event.isComposing && event.target === box
  const text = enter || button ? box.value.trim() : ''
  if (!text || !document.querySelector('#question .submit-button:enabled')) return
  if (document.querySelector('#sources [data-none-ticked]')) return
  asked.firstChild.textContent = text
  conversation().append(asked)
  setTimeout(() => asked.remove(), 15000)
}
for (const kind of ['keydown', 'click']) document.addEventListener(kind, showSent, true)
new MutationObserver(() => asked.remove()).observe(element, { subtree: true, childList: true, characterData: true })

// A question is edited in its own place, as wide as the conversation.
function edit(button) {
  const question = button.closest('.lc-question'), asked = question.querySelector('.lc-asked')
  const form = document.createElement('form'), box = document.createElement('textarea')
  box.value = asked.textContent
  box.setAttribute('aria-label', 'Question')
  form.className = 'lc-edit'
  form.innerHTML = '<p><button type="submit">Ask</button><button type="button">Cancel</button></p>'
  form.prepend(box)
  const close = () => { form.remove(); question.classList.remove('lc-editing'); button.focus() }
  form.querySelector('[type=button]').addEventListener('click', close)
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    if (box.value.trim()) act(`edit ${button.dataset.message}\n${box.value.trim()}`)
    close()
  })
  box.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit() }
    if (event.key === 'Escape') { event.preventDefault(); event.stopPropagation(); close() }
  })
  question.classList.add('lc-editing')
  question.append(form)
  box.style.height = `${Math.min(box.scrollHeight + 2, 0.5 * innerHeight)}px`
  box.focus()
}

// The conversation is drawn anew: the keyboard stays where it was.
let wanted = null
const focusAgain = () => {
  const active = document.activeElement
  if (!wanted || (!active.disabled && active.closest('#conversation, #question'))) return
  const again = [...document.querySelectorAll('#conversation [data-key]')].find((b) => b.dataset.key === wanted)
  const enabled = again?.disabled ? again.parentElement.querySelector('button:enabled') : again
  enabled?.focus({ preventScroll: true })
}
document.addEventListener('focusin', (event) => {
  wanted = event.target.closest('#conversation [data-key]')?.dataset.key || null
})

// A new question comes into view, and its answer as it grows, until the question is at the top or somebody scrolls.
let newest = null, follows = true
const follow = () => {
  const scroller = conversation(), last = [...scroller.querySelectorAll('.lc-question')].pop()
  const key = last ? `${scroller.querySelectorAll('.lc-question').length} ${last.textContent.slice(0, 80)}` : null
  if (key !== newest) follows = true
  newest = key
  if (!follows || !last) return
  const top = last.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scroller.scrollTop - 12
  scroller.scrollTop = Math.min(top, scroller.scrollHeight - scroller.clientHeight)
}
for (const kind of ['wheel', 'touchmove', 'keydown', 'mousedown'])
  conversation().addEventListener(kind, (event) => {
    if (kind !== 'keydown' || /^(Arrow|Page|Home|End)/.test(event.key)) follows = false
  }, { passive: true })
const drawn = { subtree: true, childList: true, characterData: true, attributeFilter: ['data-action', 'disabled'] }
new MutationObserver(() => { setTimeout(focusAgain, 50); follow() }).observe(conversation(), drawn)
new ResizeObserver(follow).observe(conversation())
follow()
