// Twin of CUDA's header.
#pragma once
#include "cuda_runtime.h"
