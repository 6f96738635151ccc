"""The colours and the order of curves that all figures and pages share; light to import."""

# From Okabe and Ito's palette: distinct for all common kinds of colour vision.
ORANGE, GREEN, YELLOW, BLUE, VERMILION, PURPLE = "#E69F00", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#666666"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, GREY)
OBJECT_COLOURS = (PURPLE, BLUE, GREEN, ORANGE, VERMILION, GREY)
FAINTEST = 0.15  # opacity of an object that is surely hidden
# The losses of all methods; a method has at most as many as there are colours.
TERMS = (
    "agent",
    "contrast",
    "scout",
    "follow",
    "contact",
    "stay",
    "touch",
    "object",
    "angle",
    "reconstruction",
    "prior",
)
