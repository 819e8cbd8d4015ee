"""Names of the columns that several modules read and write, and of the keys of a score's group."""

# prompts.parquet: two columns of this project, then the metadata columns of the upstream generator.
PROMPT_ID = "prompt_id"
PERSONA = "persona"
TEXT = "text"
TEMPLATE = "template"
AXIS = "axis"
DESCRIPTOR = "descriptor"
BUCKET = "bucket"  # a subgroup of an axis, whose descriptors are words for the same people
NOUN = "noun"
# Column of prompts.parquet: true for prompts that are excluded from tuning (data/prompts.py, untuned_mask).
UNTUNED = "untuned"
# responses.parquet: PROMPT_ID, RESPONSE. styles.parquet: PROMPT_ID and a float32 column for each style.
RESPONSE = "response"
# labels.parquet: PROMPT_ID, BIAS_VALUE (b), LABEL ("bias" or "no_bias").
BIAS_VALUE = "bias_value"
LABEL = "label"
# pairs.parquet: two sentences about two groups; MORE is the sentence that is closer to the stereotype.
PAIR_ID = "pair_id"
BIAS_TYPE = "bias_type"
DIRECTION = "direction"
MORE = "more"
LESS = "less"
EXTRA = "is_extra"  # in memory: whether an answer is one more than everybody has (`prompts.more_answers`)
CUE = "cue"  # how a model knows the person in a prompt
STYLE = "style"  # a style of the style classifier
CLUSTER = "cluster"  # a style cluster
RESPONSE_IDS = "response_ids"  # the token ids in which a loaded model wrote the response, or null
OPENING = "opening"  # the text with which a response begins
OPENING_IDS = "opening_ids"  # the token ids of the opening, where a loaded model wrote it
CUT = "cut"  # whether max_new_tokens ended the response
REASONED = "reasoned"  # whether the model wrote reasoning, which is not part of the response
LEFT_OUT = "left_out"  # the reason why a row is not in the scores, or null
OTHER_TEXT = "other_text"  # the kinds of other text in a response, by name, with blanks between them
ANSWER_COLUMNS = (RESPONSE, RESPONSE_IDS, CUT)  # what a model that scores a response reads of it
RUN = "run"  # a key of groups: which of two compared runs ("before" or "after") a level of a comparison is of
# Tables of likelihoods.
LOG_LIKELIHOOD = "log_likelihood"
TOKENS = "tokens"
VARIANT = "variant"  # which log-likelihood of a sentence is its score
