() => {  // The document beside the chat: opened by any element of class lc-open-source (ui/viewer/document_viewer.py).
  const NARROW = matchMedia("(max-width: 900px)")
  const WAIT = 300  // milliseconds between the last letter typed into the search and the search
  const OPENERS = ".lc-open-source[data-document]"
  const GROUPS = ".lc-answer, #hits"  // whose openers are the sources of one answer, or hits
  const BLOCKS = ".lc-set-markdown, ul, ol, li, blockquote, table, tr"
  const SVG = "http://www.w3.org/2000/svg"

  const panel = document.createElement("aside")
  panel.id = "viewer"
  panel.hidden = true
  panel.setAttribute("aria-labelledby", "viewer-name")
  panel.innerHTML = `
    <header>
      <h2 id="viewer-name" tabindex="-1"></h2>
      <div class="lc-steps" id="viewer-sources" role="group" aria-label="Sources">
        <button type="button" data-do="source-before" aria-label="Previous source">&#8249;</button>
        <span id="viewer-count" role="status"></span>
        <button type="button" data-do="source-after" aria-label="Next source">&#8250;</button>
      </div>
      <button type="button" data-do="close" aria-label="Close the document">Close</button>
    </header>
    <div class="lc-tools" role="group" aria-label="Pages and search">
      <div class="lc-steps">
        <button type="button" data-do="part-before">&#8249;</button>
        <label><span id="viewer-kind"></span> <input id="viewer-part" inputmode="text" autocomplete="off"></label>
        <span id="viewer-total"></span>
        <button type="button" data-do="part-after">&#8250;</button>
      </div>
      <div class="lc-steps lc-find" role="search">
        <input id="viewer-words" type="search" placeholder="Search in the document" aria-label="Search in the document"
          autocomplete="off">
        <span id="viewer-hits" role="status"></span>
        <button type="button" data-do="hit-before" aria-label="Previous hit">&#8249;</button>
        <button type="button" data-do="hit-after" aria-label="Next hit">&#8250;</button>
      </div>
      <div class="lc-steps">
        <button type="button" data-do="larger" aria-pressed="false">Larger</button>
        <button type="button" data-do="text" aria-pressed="false">As text</button>
      </div>
    </div>
    <p id="viewer-notice" role="status"></p>
    <div id="viewer-body" tabindex="0" role="region" aria-label="Content"></div>
    <footer>
      <button type="button" data-do="ask" id="viewer-ask" disabled>Ask about this selection</button>
      <button type="button" data-do="until" id="viewer-until">Read only up to this page</button>
    </footer>`
  document.body.append(panel)
  const at = (id) => panel.querySelector(`#viewer-${id}`)
  const button = (name) => panel.querySelector(`[data-do="${name}"]`)
  const body = at("body")

  let part = null  // what the server said of the page or section that is shown
  let letters = []  // its text, by characters as the server counts them
  let place = null  // the source that is shown: document, start, end
  let sources = [], source = 0
  let hits = [], hit = -1
  let asText = false, asked = 0, opener = null, searching = 0

  // ---- From the server

  const address = (document, rest) => `${location.origin}/documents/${document}/${rest}`

  async function read(url) {
    try {
      const response = await fetch(url)
      return response.ok ? await response.json() : { gone: response.status === 404 }
    } catch {
      return {}
    }
  }

  async function load(query, focus) {
    const number = ++asked
    const got = await read(address(place.document, `part?${new URLSearchParams(query)}`))
    if (number !== asked || panel.hidden) return
    if (got.text === undefined) return fail(got.gone, query)
    part = got
    letters = Array.from(part.text)
    draw()
    reveal()
    if (focus) at("name").focus({ preventScroll: true })
  }

  function fail(gone, query) {
    if (gone && part && part.document === place.document && query.label !== undefined) {
      at("notice").textContent = `There is no ${part.kind} ${query.label}.`
      at("part").value = part.label
      return
    }
    part = null
    letters = []
    body.replaceChildren()
    at("notice").textContent = gone ? "This document is not in the library any more." : "localctx does not answer."
    at("name").textContent = place.name || "Document"
    tell()
  }

  // ---- What is shown

  const marked = () => [
    ...hits.map(([start, end], i) => ({ start, end, kind: i === hit ? "lc-here" : "lc-hit-word" })),
    ...place.marks.map(([start, end]) => ({ start, end, kind: "lc-cited" })),
  ].filter(({ start, end }) => start < part.end && end > part.start)

  function draw() {
    at("name").textContent = part.name
    const words = part.words
    const onPage = part.image && !asText
    const missing = onPage && !words.length && part.text.trim()
    at("notice").textContent = part.notice ||
      (missing ? "It is not known where the words are on this page. “As text” shows them." : "")
    body.classList.toggle("lc-text", !onPage)
    body.replaceChildren(onPage ? pageOf(words) : textOf())
    body.scrollTop = 0
    body.scrollLeft = 0
    if (onPage && part.number < part.total) new Image().src = imageOf(part.number + 1)
    tell()
  }

  const imageOf = (number) => address(part.document, `pages/${number}`)

  function pageOf(words) {
    const page = document.createElement("div")
    page.className = "lc-page"
    page.style.aspectRatio = `${part.width} / ${part.height}`
    const image = document.createElement("img")
    image.alt = part.text || `Page ${part.label}`
    image.src = imageOf(part.number)
    const shown = part
    image.onerror = () => { if (part === shown) { part = { ...part, image: false }; draw() } }
    page.append(image, overlayOf(words))
    return page
  }

  // Above the picture: what is marked, and the words themselves, invisible, so that they can be selected.
  function overlayOf(words) {
    const overlay = document.createElementNS(SVG, "svg")
    overlay.setAttribute("viewBox", `0 0 ${part.width} ${part.height}`)
    overlay.setAttribute("aria-hidden", "true")
    const across = part.width / 65535, down = part.height / 65535
    for (const { start, end, kind } of marked()) {
      for (const [left, top, right, bottom] of lines(words.filter((w) => w[0] < end && w[1] > start))) {
        const box = document.createElementNS(SVG, "rect")
        const size = { x: left * across, y: top * down, width: (right - left) * across, height: (bottom - top) * down }
        for (const [name, value] of Object.entries(size)) box.setAttribute(name, value)
        box.setAttribute("class", kind)
        overlay.append(box)
      }
    }
    words.forEach(([start, end, left, top, right, bottom], i) => {
      const height = (bottom - top) * down, width = (right - left) * across
      if (height <= 0 || width <= 0) return
      const word = document.createElementNS(SVG, "text")
      const values = { x: left * across, y: top * down + 0.8 * height, "font-size": height * 0.85, textLength: width }
      for (const [name, value] of Object.entries(values)) word.setAttribute(name, value)
      word.setAttribute("lengthAdjust", "spacingAndGlyphs")
      word.dataset.word = i
      word.textContent = letters.slice(start - part.start, end - part.start).join("")
      overlay.append(word)
    })
    return overlay
  }

  // The boxes of words that follow each other on a line, as one box.
  function lines(words) {
    const found = []
    for (const [, , left, top, right, bottom] of words) {
      const last = found[found.length - 1]
      const overlap = last ? Math.min(last[3], bottom) - Math.max(last[1], top) : 0
      const gap = last ? left * part.width - last[2] * part.width : 0
      const near = gap > -2 * part.width && gap < 2 * (bottom - top) * part.height
      if (last && near && overlap > (bottom - top) / 2) {
        found[found.length - 1] = [
          Math.min(last[0], left), Math.min(last[1], top), Math.max(last[2], right), Math.max(last[3], bottom),
        ]
      } else found.push([left, top, right, bottom])
    }
    return found
  }

  // The text as a tree of elements, one for each range that the server found (ui/viewer/text_layout.py).
  function textOf() {
    const text = document.createElement("div")
    text.className = `lc-part-text lc-set-${part.layout}`
    const ranges = marked(), outer = [], none = []
    let open = { element: text, end: part.end }, at = part.start
    const fill = (end) => {
      const inner = open.element.matches(BLOCKS) ? none : ranges  // between elements of a block is only white space
      if (end > at) open.element.append(...pieces(at, end, inner))
      at = end
    }
    for (const [start, end, tag, value] of part.ranges) {
      for (; open.end <= start; open = outer.pop()) fill(open.end)
      fill(start)
      outer.push(open)
      open = { element: begin(open.element, tag, value), end }
    }
    for (; open; open = outer.pop()) fill(open.end)
    text.querySelectorAll("table").forEach(square)
    return text
  }

  // The characters from..to as text, and as marks where something in them is marked.
  function pieces(from, to, ranges) {
    const edges = new Set([from, to])
    for (const { start, end } of ranges) [start, end].forEach((e) => edges.add(Math.max(from, Math.min(to, e))))
    const cuts = [...edges].sort((a, b) => a - b)
    return cuts.slice(1).map((cut, i) => {
      const words = document.createTextNode(letters.slice(cuts[i] - part.start, cut - part.start).join(""))
      const around = ranges.filter(({ start, end }) => start <= cuts[i] && cut <= end)
      if (!around.length) return words
      const piece = document.createElement("mark")
      piece.className = around.map((r) => r.kind).sort()[around.length - 1]
      piece.append(words)
      return piece
    })
  }

  function begin(parent, tag, value) {
    const element = document.createElement(tag)
    if (tag === "span") element.className = value
    if (tag === "li" && value) element.value = value
    if (tag === "td" || tag === "th") {
      const [column, right] = value, first = parent.dataset.row === undefined ? 0 : 1
      while (column >= 0 && parent.cells.length < first + column) parent.insertCell()
      element.classList.toggle("lc-right", right)
      element.classList.toggle("lc-wide", column < 0)
    }
    parent.append(element)
    if (tag === "tr" && part.layout === "grid") number(element, value)
    if (tag === "table" && value.length) number(element.insertRow(), "", value)
    if (tag === "table" && part.layout !== "grid") scroller(element)
    return element
  }

  // The number of a row, and names of columns, which are not in the text here: style sheets show them.
  function number(row, label, names = []) {
    row.dataset.row = label
    for (const [name, right] of [[label], ...names]) {
      const cell = row.appendChild(document.createElement("th"))
      cell.dataset.name = name
      cell.classList.toggle("lc-right", !!right)
    }
  }

  function scroller(table) {
    const box = document.createElement("div")
    box.className = "lc-scroll"
    box.tabIndex = 0
    table.replaceWith(box)
    box.append(table)
  }

  function square(table) {
    const width = Math.max(...[...table.rows].map((row) => row.cells.length))
    for (const row of table.rows) {
      const last = row.cells[row.cells.length - 1]
      if (last?.matches(".lc-wide")) last.colSpan = width - row.cells.length + 1
      else while (row.cells.length < width) row.insertCell()
    }
    const header = [...table.rows].filter((row) => row.cells[1]?.tagName === "TH")
    header[header.length - 1]?.classList.add("lc-header")
  }

  function reveal() {
    const wanted = [...body.querySelectorAll(hit >= 0 ? ".lc-here" : ".lc-cited")]
    const shown = wanted.find((mark) => mark.getClientRects().length)  // a mark on hidden signs has no place
    shown?.scrollIntoView({ block: "center", inline: "nearest" })
  }

  function tell() {
    const known = part || { kind: "page", label: "", number: 0, total: 0 }
    const several = known.total > 1
    at("kind").textContent = known.kind === "page" ? "Page" : "Section"
    at("part").value = known.label
    at("part").size = Math.max(3, known.label.length)
    at("total").textContent = `of ${known.total.toLocaleString("en")}`
    for (const [name, step] of [["before", -1], ["after", 1]]) {
      button(`part-${name}`).setAttribute("aria-label", `${step < 0 ? "Previous" : "Next"} ${known.kind}`)
      button(`part-${name}`).disabled = !part || known.number + step < 1 || known.number + step > known.total
      button(`hit-${name}`).hidden = hits.length < 2
    }
    at("part").disabled = !several
    at("sources").hidden = sources.length < 2
    at("count").textContent = sources.length < 2 ? "" : `${source + 1} of ${sources.length}`
    button("text").hidden = !part || !part.image
    button("text").setAttribute("aria-pressed", asText)
    button("larger").setAttribute("aria-pressed", panel.classList.contains("lc-large"))
    at("until").disabled = !part
    at("words").disabled = !part
    showHits()
    choose()
  }

  function showHits() {
    const words = at("words").value.trim()
    const found = hit < 0 ? `${hits.length} hits` : `${hit + 1} of ${hits.length}`
    at("hits").textContent = !words || searching ? "" : hits.length ? found : "no hit"
  }

  // ---- Moving about

  function open(target) {
    const group = target.closest(GROUPS) || target
    const all = group === target ? [target] : [...group.querySelectorAll(".lc-open-source")]
    sources = all.map(placeOf).filter((p, i, list) => list.findIndex((q) => same(p, q)) === i)
    source = Math.max(0, sources.findIndex((p) => same(p, placeOf(target))))
    opener = target
    show()
    go(sources[source], true)
  }

  const placeOf = ({ dataset: of }) => {
    const [start, end] = [Number(of.start) || 0, Number(of.end) || 0]
    const words = (of.marks || "").split(" ").filter(Boolean).map((range) => range.split("-").map(Number))
    return {
      document: of.document, start, end, name: of.name || "", marks: words.length ? words : end > start ? [[start, end]] : [],
    }
  }
  const same = (p, q) => p.document === q.document && p.start === q.start && p.end === q.end

  function go(to, focus) {
    if (!place || place.document !== to.document) {
      part = null
      at("words").value = ""
    }
    [hits, hit] = at("words").value && place && place.document === to.document ? [hits, -1] : [[], -1]
    place = to
    tell()
    load({ at: place.start }, focus)
  }

  function step(by) {
    if (sources.length < 2) return
    source = (source + by + sources.length) % sources.length
    go(sources[source])
  }

  function turn(by) {
    if (part && part.number + by >= 1 && part.number + by <= part.total) {
      hit = -1
      load({ number: part.number + by })
    }
  }

  async function search() {
    if (!place) return  // the document was closed
    const words = at("words").value.trim(), document = place.document
    searching = words ? 1 : 0
    hits = []
    hit = -1
    if (!words) return part && draw()
    const got = await read(address(document, `search?${new URLSearchParams({ words })}`))
    if (words !== at("words").value.trim() || document !== place.document) return
    searching = 0
    hits = got.hits || []
    const from = part ? part.start : 0
    hit = hits.length ? Math.max(0, hits.findIndex(([start]) => start >= from)) : -1
    hits.length ? toHit() : part && draw()
  }

  function toHit() {
    const [start] = hits[hit]
    if (part && start >= part.start && start < part.end) {
      draw()
      reveal()
    } else load({ at: start })
  }

  function stepHit(by) {
    if (!hits.length) return
    hit = hit < 0 ? (by > 0 ? 0 : hits.length - 1) : (hit + by + hits.length) % hits.length
    toHit()
  }

  // ---- What is selected

  function selected() {
    const selection = getSelection()
    if (!part || !selection.rangeCount || selection.isCollapsed || !body.contains(selection.anchorNode)) return null
    const range = selection.getRangeAt(0)
    const page = body.querySelector("svg")
    if (page) {
      const chosen = [...page.querySelectorAll("text")].filter((e) => selection.containsNode(e, true))
      const words = chosen.map((e) => part.words[Number(e.dataset.word)])
      if (!words.length) return null
      return { start: Math.min(...words.map((w) => w[0])), end: Math.max(...words.map((w) => w[1])) }
    }
    const text = body.querySelector(".lc-part-text")
    if (!text || !range.intersectsNode(text)) return null
    const before = document.createRange()
    before.selectNodeContents(text)
    const start = text.contains(range.startContainer)
      ? (before.setEnd(range.startContainer, range.startOffset), Array.from(before.toString()).length) : 0
    before.selectNodeContents(text)
    const end = text.contains(range.endContainer)
      ? (before.setEnd(range.endContainer, range.endOffset), Array.from(before.toString()).length) : letters.length
    return end > start ? { start: part.start + start, end: part.start + end } : null
  }

  function choose() {
    const range = selected()
    at("ask").disabled = !range
    at("until").textContent = `Read only up to this ${range ? "selection" : part?.kind || "page"}`
    at("until").title = "Questions of the chat then see nothing after it"
    at("ask").title = range ? "" : "Select words above first"
  }

  function send(action) {
    const range = selected() || (action === "until" && part && { start: part.end, end: part.end })
    if (!range) return
    panel.dataset.request = JSON.stringify({ action, document: part.document, ...range })
    document.querySelector("#viewer-send")?.click()
    getSelection().removeAllRanges()
    if (action === "until") at("notice").textContent = "Questions of this chat now use nothing after this place."
    if (NARROW.matches) close(false)
  }

  // ---- Open and closed

  function show() {
    panel.hidden = false
    document.body.classList.add("lc-viewing")
    over()
  }

  // On a narrow screen the panel lies over the page, which then takes neither keys nor clicks.
  function over() {
    const covers = NARROW.matches && !panel.hidden
    document.querySelector("gradio-app, .gradio-container")?.toggleAttribute("inert", covers)
    panel.setAttribute("role", covers ? "dialog" : "complementary")
    panel.toggleAttribute("aria-modal", covers)
    if (covers) panel.setAttribute("aria-modal", "true")
  }

  function close(back = true) {
    panel.hidden = true
    document.body.classList.remove("lc-viewing")
    over()
    part = place = null
    asked++
    clearTimeout(typed)
    body.replaceChildren()
    if (back && opener?.isConnected) opener.focus()
  }

  const actions = {
    close: () => close(),
    "source-before": () => step(-1), "source-after": () => step(1),
    "part-before": () => turn(-1), "part-after": () => turn(1),
    "hit-before": () => stepHit(-1), "hit-after": () => stepHit(1),
    text: () => { asText = !asText; draw(); reveal() },
    larger: () => { panel.classList.toggle("lc-large"); tell(); reveal() },
    ask: () => send("ask"), until: () => send("until"),
  }
  panel.addEventListener("click", (event) => {
    const name = event.target.closest("[data-do]")?.dataset.do
    if (name) actions[name]()
  })
  panel.addEventListener("mousedown", (event) => {  // a click on a button leaves the selection
    if (event.target.closest("footer button")) event.preventDefault()
  })
  at("part").addEventListener("change", () => { hit = -1; load({ label: at("part").value.trim() }) })
  let typed = 0
  at("words").addEventListener("input", () => {
    clearTimeout(typed)
    searching = 1
    showHits()
    typed = setTimeout(search, WAIT)
  })
  at("words").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && hits.length && !searching) stepHit(event.shiftKey ? -1 : 1)
  })
  body.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (by && !event.ctrlKey && !event.altKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault()
      turn(by)
    }
  })
  body.addEventListener("copy", (event) => {
    const range = body.querySelector("svg") && selected()
    if (!range) return
    event.clipboardData.setData("text/plain", letters.slice(range.start - part.start, range.end - part.start).join(""))
    event.preventDefault()
  })
  document.addEventListener("selectionchange", () => { if (!panel.hidden) choose() })
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || panel.hidden || event.defaultPrevented) return
    const elsewhere = event.target.closest?.("input, textarea, select, [role=dialog]")  // which Esc may mean something to
    if (panel.contains(event.target) || !elsewhere || elsewhere.closest("#question")) {
      event.preventDefault()
      close()
    }
  }, true)  // before Esc stops an answer
  NARROW.addEventListener("change", over)

  document.addEventListener("click", (event) => {
    const target = event.target.closest?.(OPENERS)
    if (!target) return
    event.preventDefault()
    open(target)
  }, true)
}
