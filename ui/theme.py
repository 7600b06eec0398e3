"""Defines the colours, fonts and borders of the window in the light and the dark theme."""

import gradio as gr

SANS = ("ui-sans-serif", "system-ui", "sans-serif")
MONO = ("ui-monospace", "Consolas", "monospace")
EDGE, EDGE_DARK = "#7d8b9f", "#74849b"  # borders of inputs and checkboxes; the contrast is at least 3 : 1

VALUES: dict[str, str | tuple[str, str]] = {
    "body_background_fill": ("*neutral_50", "*neutral_950"),
    "background_fill_secondary": ("*neutral_100", "*neutral_900"),
    "body_text_color": ("*neutral_900", "*neutral_100"),
    "body_text_color_subdued": ("*neutral_600", "*neutral_300"),
    "block_background_fill": "transparent",
    "block_border_width": "0px",
    "block_padding": ("0", ""),
    "block_label_background_fill": "none",
    "block_label_text_color": "*body_text_color",
    "block_title_text_color": "*body_text_color",
    "block_title_text_weight": ("600", ""),
    "panel_background_fill": "transparent",
    "panel_border_width": "0px",
    "link_text_color": ("*primary_700", "*primary_300"),
    "input_background_fill": ("white", "*neutral_900"),
    "input_border_width": "1px",
    "input_border_color": (EDGE, EDGE_DARK),
    "input_border_color_focus": ("*primary_700", "*primary_400"),
    "input_placeholder_color": ("*neutral_600", "*neutral_300"),
    "input_shadow_focus": ("0 0 0 1px *primary_700", "0 0 0 1px *primary_400"),
    "checkbox_background_color": ("white", "*neutral_900"),
    "checkbox_border_color": (EDGE, EDGE_DARK),
    "checkbox_background_color_selected": ("*primary_700", "*primary_600"),
    "checkbox_label_background_fill": ("white", "*neutral_900"),
    "checkbox_label_border_color": (EDGE, EDGE_DARK),
    # white text on this colour has a contrast of 4.5 : 1
    "checkbox_label_background_fill_selected": "*primary_700",
    "checkbox_label_text_color_selected": "white",
    "button_border_width": "1px",  # gradio sets none in the dark theme
    "button_small_text_weight": ("500", ""),
    "button_primary_background_fill": "*primary_700",
    "button_primary_background_fill_hover": ("*primary_800", "*primary_600"),
    "button_primary_border_color": "*primary_700",
    "button_secondary_background_fill": ("white", "*neutral_900"),
    "button_secondary_background_fill_hover": ("*neutral_100", "*neutral_800"),
    "button_secondary_border_color": (EDGE, EDGE_DARK),
    "button_secondary_text_color": ("*neutral_900", "*neutral_100"),
    "button_cancel_background_fill": "#b91c1c",
    "button_cancel_background_fill_hover": "#991b1b",
    "button_cancel_border_color": "#b91c1c",
    "button_cancel_text_color": "white",
}
"""Values that differ from those of gradio's base theme: one for both the light and the dark theme, or one for each ("":
gradio's own).
"""


def window_theme() -> gr.themes.Base:
    """Returns a theme that loads no fonts or files from the network."""
    base = gr.themes.Base(primary_hue="teal", secondary_hue="teal", neutral_hue="slate", font=SANS, font_mono=MONO)
    values = dict[str, str]()
    for name, value in VALUES.items():
        light, dark = (value, value) if isinstance(value, str) else value
        values |= {name: light} | ({f"{name}_dark": dark} if dark else {})
    return base.set(**values)
