() => {  // What gradio's page lacks.
  document.documentElement.lang = "en"

  // On a narrow screen the sidebar lies over everything else.
  if (innerWidth < 768) document.querySelector('button[aria-label="Toggle Sidebar"]')?.click()

  // A message is given to the conversation escaped (render.said), and is copied as what it says.
  if (navigator.clipboard) {
    const write = navigator.clipboard.writeText.bind(navigator.clipboard)
    const said = (text) => new DOMParser().parseFromString(`<pre>\n${text}</pre>`, "text/html").body.textContent
    navigator.clipboard.writeText = (text) =>
      write(document.activeElement?.closest("#conversation") ? said(text) : text)
  }
}
