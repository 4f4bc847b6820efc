"""The 19 classes of CelebAMask-HQ: names, colours, and which of them trade places in a mirror."""

CLASSES = (
    "background",
    "skin",
    "nose",
    "eye_g",
    "l_eye",
    "r_eye",
    "l_brow",
    "r_brow",
    "l_ear",
    "r_ear",
    "mouth",
    "u_lip",
    "l_lip",
    "hair",
    "hat",
    "ear_r",
    "neck_l",
    "neck",
    "cloth",
)
NUM_CLASSES = len(CLASSES)
IGNORE = 255  # in a mask: nothing is known here
MIRRORED = {4: 5, 6: 7, 8: 9}  # left and right eye, brow, ear

COLOURS = (  # red, green, blue of each class, in pictures and in the palette of masks
    (0, 0, 0),
    (232, 180, 140),
    (214, 120, 90),
    (120, 220, 230),
    (40, 110, 240),
    (20, 200, 140),
    (110, 60, 200),
    (190, 110, 240),
    (240, 150, 40),
    (250, 210, 60),
    (120, 10, 30),
    (230, 30, 80),
    (250, 120, 160),
    (110, 70, 40),
    (90, 140, 60),
    (200, 250, 60),
    (255, 240, 170),
    (180, 140, 110),
    (90, 110, 150),
)
PALETTE = [value for colour in COLOURS for value in colour] + [128] * 3 * (256 - NUM_CLASSES)
