() => {  // Additions to gradio's page.
  document.documentElement.lang = "en"

  // On a narrow screen the sidebar lies over everything else.
  if (innerWidth < 768) document.querySelector('button[aria-label="Toggle Sidebar"]')?.click()

  // Messages are escaped for the conversation (render.chat_text); copying gives their text.
  if (navigator.clipboard) {
    const write = navigator.clipboard.writeText.bind(navigator.clipboard)
    const unescaped = (text) => new DOMParser().parseFromString(`<pre>\n${text}</pre>`, "text/html").body.textContent
    navigator.clipboard.writeText = (text) =>
      write(document.activeElement?.closest("#conversation") ? unescaped(text) : text)
  }
}
