"""Short names for array types; docstrings give their shapes."""

import numpy as np
import numpy.typing as npt

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I16 = npt.NDArray[np.int16]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
