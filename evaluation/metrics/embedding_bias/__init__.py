"""Embedding bias: cosines of English sentences with their gendered translations (Costa-jussà et al. 2023, §5)."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.metrics import FamilyRun, MeasureConfig, Metric
from evenhand.evaluation.report.formats import Format, format_of
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.report.tables import LEVEL, value_text
from evenhand.evaluation.score import BiasScore, display_name, find_score
from evenhand.evaluation.settings import CONTENT, AnyPath, option, strict_dataclass

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from evenhand.evaluation.store import Store

_GAP = {"unit": UNIT, "factor": PER_UNIT, "ideal": 0, "signed": True}


@strict_dataclass
class Settings:
    """Embedding bias: is an English sentence nearer to its masculine translation than to its feminine one?"""

    references: AnyPath | None = option(
        None, "gendered translations: a CSV file, or a folder of MT-GenEval or MMHB", identity=CONTENT
    )
    split: str = option("dev", "which split of MT-GenEval or MMHB")
    languages: list[str] = option(list, "languages of the references, such as 'es' or 'spa_Latn'; empty: all")


class EmbeddingBias(Metric):
    """Scores of a sentence encoder."""

    Settings = Settings
    FORMATS = (
        Format(
            "embedding_gap",
            "gap",
            "Cosine of the English sentence and its masculine translation minus the cosine with its feminine one.",
            **_GAP,
        ),
        Format("embedding_gap_holm", "gap", "The gap with Holm’s correction of p over languages.", **_GAP),
        Format("embedding_gap_one_sided", "gap", "The gap with the one-sided test of Costa-jussà et al., §5.", **_GAP),
        Format(
            "embedding_similarity", "cosine", "Cosine of an English sentence and its translation, −1 to 1.", decimals=3
        ),
    )
    TITLE, COUNTED = "Embeddings and gender", "sentences"
    NOTES = (
        "Brackets hold the 95 % interval of the paired t-test, over other sentences of the same kind.",
        "An English sentence with a gender is nearer to the translation of its own gender. That agreement is not bias.",
    )
    LIMITS = (
        "An encoder that was trained on English only measures how much a translation looks like English, not what it "
        "means.",
        "A nearer embedding does no harm by itself. It matters if translations are searched or compared by embeddings.",
        "Translations are masculine or feminine. Other genders are not measured. Do not compare cosines between "
        "encoders or between languages.",
    )

    def inputs(self, config: MeasureConfig) -> dict[str, Any]:
        """Return fingerprints of the references and of the sentence encoder."""
        from evenhand.evaluation.data.gendered_translations import load_references, references_sha256
        from evenhand.evaluation.models.revisions import model_revision

        settings = config.settings
        references = references_sha256(settings.references)
        load_references(settings.references, settings.split, settings.languages, "embedding_bias.languages")
        model = model_revision(config.model.name, config.model.revision, config.model.base)
        return {"references": references, "model": model}

    def collect(self, store: "Store", config: MeasureConfig) -> "pd.DataFrame":
        return store.table("cosines", lambda: self._cosines(store, config), on_all_ranks=True)

    def _cosines(self, store: "Store", config: MeasureConfig) -> "pd.DataFrame":
        import numpy as np

        from evenhand.evaluation.data.gendered_translations import load_references
        from evenhand.evaluation.metrics.embedding_bias.metric import add_cosines, pair_with_references
        from evenhand.evaluation.models.embeddings import encode_texts, load_sentence_encoder, sentence_embeddings

        settings = config.settings
        pairs = pair_with_references(load_references(settings.references, settings.split, settings.languages))
        texts = list(dict.fromkeys([*pairs["english"], *pairs["reference"]]))
        encoder = load_sentence_encoder(config.model)
        _, is_truncated = encode_texts(encoder, texts)

        def compute(texts: Sequence[str]) -> "Iterator[tuple[np.ndarray, list[np.ndarray]]]":
            return ((rows, list(vectors)) for rows, vectors in sentence_embeddings(encoder, texts))

        vectors = store.rows("vectors", ["vector"], compute, texts, unit="texts")["vector"]
        truncated = {text for text, flag in zip(texts, is_truncated, strict=True) if flag}
        table = add_cosines(pairs, texts, np.stack(vectors.to_numpy()))
        return table.assign(truncated=table["english"].isin(truncated) | table["reference"].isin(truncated))

    def score(self, store: "Store", config: MeasureConfig, table: "pd.DataFrame") -> list[BiasScore]:
        from evenhand.evaluation.manifest import package_versions
        from evenhand.evaluation.metrics.embedding_bias.metric import embedding_scores

        store.facts["references"] = len(table)
        settings = config.settings
        references = {"name": str(settings.references), "sha256": store.inputs["references"], "split": settings.split}
        signature = {
            "model": config.open_model().entry(store.inputs) | {"texts_truncated": int(table["truncated"].sum())},
            "references": references,
            "languages": settings.languages,
            "packages": package_versions(),
        }
        return embedding_scores(table, signature=signature)

    def subtitle(self, run: FamilyRun) -> str:
        return f"{run.model_name} · {display_name(run.config.settings.references)}"

    def verdict(self, run: FamilyRun) -> str:
        """Return in how many languages English is nearer to the translations of one gender, and the mean gap."""
        gaps = [it for it in run.scores if it.metric == "embedding_gap" and list(it.group) == ["lang"]]
        defined = [gap for gap in gaps if math.isfinite(gap.value)]
        if not defined:
            return f"No verdict: the gap is {value_text(next(iter(gaps), None))}."
        corrected = {gap.group["lang"]: find_score(run.scores, "embedding_gap_holm", **gap.group) for gap in defined}
        significant = [it for it in defined if (corrected[it.group["lang"]].p_value or 0) < LEVEL]
        n_masculine, n_feminine = (sum(side * gap.value > 0 for gap in significant) for side in (1, -1))
        mean = sum(gap.value for gap in defined) / len(defined)
        return (
            f"English is significantly nearer to the masculine translation in {n_masculine} of {len(defined)} "
            f"languages, and to the feminine translation in {n_feminine}, with Holm’s correction for the number of "
            f"languages. The mean gap is {format_of('embedding_gap').full_text(mean)}; ideal 0."
        )

    def label(self, score: BiasScore) -> str:
        from evenhand.evaluation.data.gendered_translations import language_name

        group = score.group
        english = f", {group['english_gender']} English" if "english_gender" in group else ""
        gender = f", {group['gender']}" if "gender" in group else ""
        return f"{language_name(group['lang'])}{gender}{english}"

    def sections(self, run: FamilyRun) -> list[Section]:
        """Return tables of the scores, and the distributions of the cosines (Costa-jussà et al. 2023, Figure 8)."""
        from evenhand.evaluation.data.gendered_translations import language_name
        from evenhand.evaluation.report.figures import box_figure, svg

        cosines = run.table("cosines").groupby(["lang", "gender"])["cosine"]
        values = {f"{language_name(lang)}, {gender}": it.dropna().to_numpy() for (lang, gender), it in cosines}
        chart = [Figure("", svg(box_figure("Cosine of English sentences with their translations", values)))]
        return [*super().sections(run), Section("Similarity of translations", figures=chart if values else [])]
