"""Defines the colours, fonts and borders of the window in the light and the dark theme."""

from localctx.ui import gradio_setup  # noqa: F401 (before gradio is imported)

# isort: split
import gradio as gr

SANS = ("ui-sans-serif", "system-ui", "sans-serif")
MONO = ("ui-monospace", "Consolas", "monospace")
EDGE, EDGE_DARK = "#7d8b9f", "#74849b"  # borders of inputs and checkboxes: contrast at least 3 : 1


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
    return base.set(**_surfaces(), **_inputs(), **_buttons())


def _surfaces() -> dict[str, str]:
    return {
        "body_background_fill": "*neutral_50",
        "body_background_fill_dark": "*neutral_950",
        "background_fill_secondary": "*neutral_100",
        "background_fill_secondary_dark": "*neutral_900",
        "body_text_color": "*neutral_900",
        "body_text_color_dark": "*neutral_100",
        "body_text_color_subdued": "*neutral_600",
        "body_text_color_subdued_dark": "*neutral_300",
        "border_color_primary": "*neutral_200",
        "border_color_primary_dark": "*neutral_700",
        "block_background_fill": "transparent",
        "block_background_fill_dark": "transparent",
        "block_border_width": "0px",
        "block_border_width_dark": "0px",
        "block_shadow": "none",
        "block_shadow_dark": "none",
        "block_padding": "0",
        "block_label_background_fill": "none",
        "block_label_background_fill_dark": "none",
        "block_label_text_color": "*body_text_color",
        "block_label_text_color_dark": "*body_text_color",
        "block_title_text_color": "*body_text_color",
        "block_title_text_color_dark": "*body_text_color",
        "block_title_text_weight": "600",
        "block_info_text_color": "*body_text_color_subdued",
        "block_info_text_color_dark": "*body_text_color_subdued",
        "panel_background_fill": "transparent",
        "panel_background_fill_dark": "transparent",
        "panel_border_width": "0px",
        "panel_border_width_dark": "0px",
        "form_gap_width": "0px",
        "link_text_color": "*primary_700",
        "link_text_color_dark": "*primary_300",
    }


def _inputs() -> dict[str, str]:
    return {
        "input_background_fill": "white",
        "input_background_fill_dark": "*neutral_900",
        "input_border_width": "1px",
        "input_border_width_dark": "1px",
        "input_border_color": EDGE,
        "input_border_color_dark": EDGE_DARK,
        "input_border_color_focus": "*primary_700",
        "input_border_color_focus_dark": "*primary_400",
        "input_placeholder_color": "*neutral_600",
        "input_placeholder_color_dark": "*neutral_300",
        "input_shadow": "none",
        "input_shadow_dark": "none",
        "input_shadow_focus": "0 0 0 1px *primary_700",
        "input_shadow_focus_dark": "0 0 0 1px *primary_400",
        "checkbox_background_color": "white",
        "checkbox_background_color_dark": "*neutral_900",
        "checkbox_border_color": EDGE,
        "checkbox_border_color_dark": EDGE_DARK,
        "checkbox_background_color_selected": "*primary_700",
        "checkbox_background_color_selected_dark": "*primary_600",
        "checkbox_label_background_fill": "white",
        "checkbox_label_background_fill_dark": "*neutral_900",
        "checkbox_label_border_width": "1px",
        "checkbox_label_border_width_dark": "1px",
        "checkbox_label_border_color": EDGE,
        "checkbox_label_border_color_dark": EDGE_DARK,
        "checkbox_label_shadow": "none",
        "checkbox_label_background_fill_selected": "*primary_700",  # white text on it has a contrast of 4.5 : 1
        "checkbox_label_background_fill_selected_dark": "*primary_700",
        "checkbox_label_text_color_selected": "white",
        "checkbox_label_text_color_selected_dark": "white",
    }


def _buttons() -> dict[str, str]:
    return {
        "button_border_width": "1px",
        "button_border_width_dark": "1px",
        "button_large_text_weight": "600",
        "button_small_text_weight": "500",
        "button_primary_shadow": "none",
        "button_secondary_shadow": "none",
        "button_primary_background_fill": "*primary_700",
        "button_primary_background_fill_hover": "*primary_800",
        "button_primary_background_fill_dark": "*primary_700",
        "button_primary_background_fill_hover_dark": "*primary_600",
        "button_primary_border_color": "*primary_700",
        "button_primary_border_color_dark": "*primary_700",
        "button_primary_text_color": "white",
        "button_primary_text_color_dark": "white",
        "button_secondary_background_fill": "white",
        "button_secondary_background_fill_hover": "*neutral_100",
        "button_secondary_background_fill_dark": "*neutral_900",
        "button_secondary_background_fill_hover_dark": "*neutral_800",
        "button_secondary_border_color": EDGE,
        "button_secondary_border_color_dark": EDGE_DARK,
        "button_secondary_text_color": "*neutral_900",
        "button_secondary_text_color_dark": "*neutral_100",
        "button_cancel_background_fill": "#b91c1c",
        "button_cancel_background_fill_hover": "#991b1b",
        "button_cancel_background_fill_dark": "#b91c1c",
        "button_cancel_background_fill_hover_dark": "#991b1b",
        "button_cancel_border_color": "#b91c1c",
        "button_cancel_border_color_dark": "#b91c1c",
        "button_cancel_text_color": "white",
        "button_cancel_text_color_dark": "white",
    }
