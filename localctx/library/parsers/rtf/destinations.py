"""Lists the control words of RTF: those that print a letter, and those that begin a destination.

A destination is a group with a purpose of its own, such as a footnote or the font table. It is read, collected or
skipped.
"""

LETTERS = {
    **{"tab": "\t", "line": "\n", "softline": "\n", "page": "\n", "column": "\n", "emspace": " ", "enspace": " "},
    **{"emdash": "\u2014", "endash": "\u2013", "bullet": "\u2022", "qmspace": " ", "lquote": "\u2018"},
    **{"rquote": "\u2019", "ldblquote": "\u201c", "rdblquote": "\u201d", "zwj": "\u200d", "zwnj": "\u200c"},
    **{"ltrmark": "\u200e", "rtlmark": "\u200f"},
}
SYMBOLS = {"~": "\xa0", "_": "-", "\t": "\t", "\\": "\\", "{": "{", "}": "}", ":": ":"}
STORIES = {"footnote", "annotation", "shptxt", "dptxbxtext"}
HEADERS = {f"{kind}{which}": kind.title() for kind in ("header", "footer") for which in ("", "l", "r", "f")}
NUMBERS = {"listtext", "pntext"}  # destinations that hold the printed number of a paragraph
READ_THROUGH = {"shp", "shpinst", "shpgrp", "fldrslt", "field", "result", "object", "nesttableprops", "shppict", "do"}
COLLECTED = {"fonttbl", "stylesheet", "atnauthor", "fldinst", "formfield", "ffl"}  # read, but not as text
SKIPPED = {
    *("colortbl", "info", "pict", "objdata", "objclass", "nonshppict", "shprslt", "upr", "sp", "sn", "sv", "bkmkstart"),
    *("bkmkend", "ftnsep", "ftnsepc", "ftncn", "aftnsep", "aftnsepc", "aftncn", "xe", "tc", "nonesttables", "template"),
    *(
        "generator",
        "listtable",
        "listoverridetable",
        "revtbl",
        "rsidtbl",
        "themedata",
        "colorschememapping",
        "datastore",
    ),
    *(
        "filetbl",
        "pgptbl",
        "pn",
        "private",
        "mmathPr",
        "latentstyles",
        "background",
        "keycode",
        "falt",
        "mmath",
        "moMath",
    ),
    *("ffname", "ffdeftext", "ffformat", "ffhelptext", "ffstattext", "ffentrymcr", "ffexitmcr", "passed over"),
}
TOLD = {"objdata": "the embedded object", "mmath": "an equation", "moMath": "an equation"}
FLAT = {
    "fonttbl",
    "stylesheet",
    "colortbl",
    "info",
    "pict",
    "generator",
    "listtable",
    "revtbl",
    "themedata",
    "datastore",
}
"""Destinations that hold no paragraphs.

The end of a paragraph in one of them shows that its closing brace is missing.
"""
