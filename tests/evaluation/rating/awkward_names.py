"""Names of raters with a difficult normal form."""

NAMES = (
    "Ann \u200b B",  # spaces on both sides of an invisible character
    "Zoe\u200b\u0301",  # an invisible character between a letter and its accent
    "\u200b Ann",
    "Ann\u00a0\ufeff\u00a0B",
    "\u1112\u200d\u1161\u11ab",  # jamo of one Hangul syllable
    "o\u0302\u2060\u0323",  # accents in another order than NFC's
    "x" * 59 + " \u200b y",  # cut after a space
    "e\u0301\u00ad\u0301" * 40,  # cut among combining marks
    "\t Ann\r\nB \u2028",
    '\u212b\u0007 O\'Neil & "<b>"',
    "\u202eevil\u202c \u2066 name",
    "a\ue000\u030a \u0085 b",  # a private-use character and a control character
)
