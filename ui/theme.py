"""Defines the colours, fonts and borders of the window in the light and the dark theme."""

from localctx.ui import gradio_setup  # noqa: F401 (before gradio is imported)

# isort: split
import gradio as gr

SANS = ("ui-sans-serif", "system-ui", "sans-serif")
MONO = ("ui-monospace", "Consolas", "monospace")
Values = dict[str, str | tuple[str, str]]
"""Values of a theme by name: one for both the light and the dark theme, or one for each ("": gradio's own)."""

EDGE, EDGE_DARK = "#7d8b9f", "#74849b"  # borders of inputs and checkboxes; the contrast is at least 3 : 1


def window_theme() -> gr.themes.Base:
    """Returns a theme that loads no fonts or files from the network."""
    base = gr.themes.Base(
        primary_hue="teal",
        secondary_hue="teal",
        neutral_hue="slate",
        font=SANS,
        font_mono=MONO,
        radius_size="md",
        spacing_size="md",
        text_size="md",
    )
    values = dict[str, str]()
    for name, value in (_surfaces() | _inputs() | _buttons()).items():
        light, dark = (value, value) if isinstance(value, str) else value
        values |= {name: light} | ({f"{name}_dark": dark} if dark else {})
    return base.set(**values)


def _surfaces() -> Values:
    return {
        "body_background_fill": ("*neutral_50", "*neutral_950"),
        "background_fill_secondary": ("*neutral_100", "*neutral_900"),
        "body_text_color": ("*neutral_900", "*neutral_100"),
        "body_text_color_subdued": ("*neutral_600", "*neutral_300"),
        "border_color_primary": ("*neutral_200", "*neutral_700"),
        "block_background_fill": "transparent",
        "block_border_width": "0px",
        "block_shadow": "none",
        "block_padding": ("0", ""),
        "block_label_background_fill": "none",
        "block_label_text_color": "*body_text_color",
        "block_title_text_color": "*body_text_color",
        "block_title_text_weight": ("600", ""),
        "block_info_text_color": "*body_text_color_subdued",
        "panel_background_fill": "transparent",
        "panel_border_width": "0px",
        "form_gap_width": ("0px", ""),
        "link_text_color": ("*primary_700", "*primary_300"),
    }


def _inputs() -> Values:
    return {
        "input_background_fill": ("white", "*neutral_900"),
        "input_border_width": "1px",
        "input_border_color": (EDGE, EDGE_DARK),
        "input_border_color_focus": ("*primary_700", "*primary_400"),
        "input_placeholder_color": ("*neutral_600", "*neutral_300"),
        "input_shadow": "none",
        "input_shadow_focus": ("0 0 0 1px *primary_700", "0 0 0 1px *primary_400"),
        "checkbox_background_color": ("white", "*neutral_900"),
        "checkbox_border_color": (EDGE, EDGE_DARK),
        "checkbox_background_color_selected": ("*primary_700", "*primary_600"),
        "checkbox_label_background_fill": ("white", "*neutral_900"),
        "checkbox_label_border_width": "1px",
        "checkbox_label_border_color": (EDGE, EDGE_DARK),
        "checkbox_label_shadow": ("none", ""),
        # white text on this colour has a contrast of 4.5 : 1
        "checkbox_label_background_fill_selected": "*primary_700",
        "checkbox_label_text_color_selected": "white",
    }


def _buttons() -> Values:
    return {
        "button_border_width": "1px",
        "button_large_text_weight": ("600", ""),
        "button_small_text_weight": ("500", ""),
        "button_primary_shadow": ("none", ""),
        "button_secondary_shadow": ("none", ""),
        "button_primary_background_fill": "*primary_700",
        "button_primary_background_fill_hover": ("*primary_800", "*primary_600"),
        "button_primary_border_color": "*primary_700",
        "button_primary_text_color": "white",
        "button_secondary_background_fill": ("white", "*neutral_900"),
        "button_secondary_background_fill_hover": ("*neutral_100", "*neutral_800"),
        "button_secondary_border_color": (EDGE, EDGE_DARK),
        "button_secondary_text_color": ("*neutral_900", "*neutral_100"),
        "button_cancel_background_fill": "#b91c1c",
        "button_cancel_background_fill_hover": "#991b1b",
        "button_cancel_border_color": "#b91c1c",
        "button_cancel_text_color": "white",
    }
