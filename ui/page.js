() => {  // Additions to gradio's page.
  document.documentElement.lang = "en"

  // A page that is left ends its streams of events, and gradio reports each of them as broken. Such reports wait a
  // moment: a page that is left makes none.
  const report = console.error.bind(console)
  const isBroken = (first) => first?.name === "AbortError" || first === "Unexpected error"
  console.error = (...all) => isBroken(all[0]) ? setTimeout(report, 1000, ...all) : report(...all)

  const find = (selector) => document.querySelector(selector)
  const visible = (element) => element?.offsetParent ? element : null
  const narrow = () => innerWidth < 768
  const toggleSidebar = () => find('button[aria-label="Toggle Sidebar"]')?.click()
  const foldSources = () => find("#chat-about > button.open")?.click()
  const unfoldSources = () => find("#chat-about > button:not(.open)")?.click()
  const closeSidebar = () => { if (find(".sidebar.open")) toggleSidebar() }

  // On a narrow screen the sidebar lies over everything else: it is closed at first, and once a chat is chosen.
  if (narrow()) {
    closeSidebar()
    foldSources()
  }
  // On a narrow screen the sources lie over the conversation, until something else is touched.
  document.addEventListener("pointerdown", (event) => {
    if (narrow() && !event.target.closest?.("#chat-side, #viewer")) foldSources()
  })
  matchMedia("(max-width: 767px)").addEventListener("change", (now) => {
    if (now.matches) { closeSidebar(); foldSources() }
    else unfoldSources()  // a wide page has no button for it
  })
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("#new-chat, .lc-chats [data-chat]")) return
    window.lcDrafts.leave(event.target.closest("#new-chat"))
    if (narrow()) closeSidebar()
    else askQuestion()
  })

  // A file of the question box is taken out by its chip.
  document.addEventListener("click", (event) => {
    const index = event.target.closest?.("[data-remove]")?.dataset.remove
    if (index) document.querySelectorAll("#question .thumbnail-item")[index]?.querySelector("button")?.click()
  })

  // What is typed survives whatever happens to the page or the server; each chat has a draft of its own.
  const EMPTY = { text: "", files: [] }
  const UNCHANGED = { __type__: "update" }  // gradio's update that sets nothing, and so loses no file of an upload
  const place = (chat) => `localctx draft ${chat}`
  const isEmpty = (value) => !value?.text && !value?.files?.length
  const kept = (chat) => { try { return JSON.parse(localStorage.getItem(place(chat))) } catch { return null } }
  // What enters the box after another chat was clicked, and before the server shows it, belongs to that chat.
  const enteredSince = (before, value) => ({
    text: value.text.startsWith(before.text) ? value.text.slice(before.text.length) : value.text,
    files: value.files.filter((file) => !before.files.some((other) => other.path === file.path)),
  })
  const full = (value) => ({ text: value?.text ?? "", files: value?.files ?? [] })
  // The chat of the last draft; a new chat has no id until its first question is asked.
  const inAddress = () => new URLSearchParams(location.search).get("chat") ?? ""
  const toAddress = (chat) =>
    history.replaceState(null, "", chat ? `?chat=${encodeURIComponent(chat)}` : location.pathname)
  let typedIn = inAddress()
  let inBox = EMPTY, left = null  // left: what was in the box when another chat was clicked
  let anew = false  // "New chat" was clicked in a new chat, which is emptied
  window.lcDrafts = {
    toAddress,
    leave(forNewChat) {
      const now = left = inBox
      anew = Boolean(forNewChat) && !inAddress()
      setTimeout(() => { if (left === now) left = null }, 20000)  // the server did not answer
    },
    keep(chat, value) {
      inBox = full(value)
      if (left) return
      if (!isEmpty(value)) localStorage.setItem(place(chat), JSON.stringify(value))
      else {
        localStorage.removeItem(place(chat))
        if (!typedIn) localStorage.removeItem(place(""))  // what was asked began this chat
      }
      typedIn = chat
    },
    // A question that was not stored: it stands before what was entered meanwhile.
    putBack(unsent, value) {
      if (isEmpty(unsent)) return [UNCHANGED]
      const now = enteredSince(unsent, full(value))
      const text = [unsent.text, now.text].filter(Boolean).join("\n")
      return [{ text, files: [...unsent.files, ...now.files] }]
    },
    back: (chat, value) => [isEmpty(value) ? kept(typedIn = chat) ?? EMPTY : value],  // the page was opened
    show(chat) {  // another chat was chosen
      const since = left ? enteredSince(left, inBox) : EMPTY
      const stays = isEmpty(left ?? inBox) && !kept(chat)
      if (anew && !chat) localStorage.removeItem(place(chat))
      left = null
      typedIn = chat
      toAddress(chat)
      return [stays ? UNCHANGED : isEmpty(since) ? kept(chat) ?? EMPTY : since]
    },
  }

  // A page whose server was killed drops all events of gradio until it is loaded again. The browser's own still come.
  // Gradio may empty the box of a new chat before it gives the chat its id: the address has the id by now.
  document.addEventListener("input", (event) => {
    if (event.target.matches?.("#question textarea"))
      window.lcDrafts.keep(typedIn || inAddress(), { ...inBox, text: event.target.value })
  })

  // A small menu closes when something else is clicked.
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll(".lc-more[open]")) menu.open = menu.contains(event.target)
  })

  // Files may fall anywhere on the chat page.
  const box = () => find("#question .full-container")
  const elsewhere = (event) =>
    event.dataTransfer?.types.includes("Files") && visible(box()) &&
    !event.target.closest?.("#question")
  for (const kind of ["dragover", "drop"])
    document.addEventListener(kind, (event) => {
      if (!elsewhere(event)) return
      event.preventDefault()
      if (kind === "drop") box().dispatchEvent(new DragEvent("drop", { dataTransfer: event.dataTransfer }))
    })

  // The details of a plan stay open while its progress is drawn anew.
  let details = false
  document.addEventListener("toggle", (event) => {
    if (event.target.closest?.("#status .lc-plan")) details = event.target.open
  }, true)
  const status = find("#status")
  if (status)
    new MutationObserver(() => {
      const plan = find("#status .lc-plan details")
      if (plan && details) plan.open = true
    }).observe(status, { childList: true, subtree: true })

  // A killed server: gradio's own message would cover the page until the page is loaded again.
  const LOST = "localctx has stopped. Start it again, and this page goes on by itself. What you typed is kept."
  const tellLost = () => {
    const lost = [...document.querySelectorAll(".toast-body")].some((toast) => toast.innerText.includes("Connection to"))
    if (!lost || find("#lost")) return
    const told = document.createElement("p")
    Object.assign(told, { id: "lost", className: "lc-status lc-error", role: "alert", textContent: LOST })
    document.body.classList.add("lc-stopped-server")
    find("#main-tabs").before(told)
  }
  new MutationObserver(tellLost).observe(document.body, { childList: true, subtree: true })

  // Keys: Ctrl-K looks for a chat, "/" goes to the question, Esc closes what lies over the page, then stops an answer.
  const focusOnceShown = (selector, tries = 40) => setTimeout(() => {
    const field = visible(find(selector))
    if (field) field.focus()
    else if (tries) focusOnceShown(selector, tries - 1)
  }, 50)
  const searchChats = () => {
    if (!find(".sidebar.open")) toggleSidebar()
    focusOnceShown("#chat-search :is(input, textarea)")
  }
  const askQuestion = () => {
    if (!visible(find("#question"))) find('button[role="tab"]')?.click()
    focusOnceShown("#question textarea")
  }
  const close = (event) => {
    const viewer = find("#viewer:not([hidden])")
    const inModels = event.target === document.body || event.target.closest("#model-picker")
    if (viewer || (inModels && visible(find("#model-panel")))) return  // which close themselves
    const opened = find(".lc-more[open], .lc-keys[open]")
    if (opened) opened.open = false
    else if (narrow() && find(".sidebar.open")) closeSidebar()
    else visible(find("#question .stop-button"))?.click()
  }
  const moveInChats = (event) => {
    const rows = [...document.querySelectorAll(".sidebar .lc-chats [data-chat]")].filter(visible)
    const at = rows.indexOf(document.activeElement)
    if (!rows.length || (at < 0 && !event.target.closest("#chat-search"))) return
    event.preventDefault()
    const next = at + (event.key === "ArrowDown" ? 1 : -1)
    if (next < 0) searchChats()
    else rows[Math.min(next, rows.length - 1)].focus()
  }
  const typing = (target) => target.closest?.("input, textarea, select, [contenteditable=true]")
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); searchChats() }
    else if (event.key === "/" && !typing(event.target)) { event.preventDefault(); askQuestion() }
    else if (event.key === "Escape" && !event.defaultPrevented) close(event)
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") moveInChats(event)
  })

  // Gradio's own autofocus takes the focus back at each update of the box, from whoever has it.
  if (document.activeElement === document.body && !narrow()) visible(find("#question textarea"))?.focus()
}
