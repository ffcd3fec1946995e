"""An extension of Model Explorer: `model-explorer FILE --extensions etprof.model_explorer`.

Model Explorer imports `main` of it, which alone needs the package ai-edge-model-explorer.
"""
