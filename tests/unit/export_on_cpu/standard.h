// The headers of C++ that this twin of CUDA's runtime includes: compiled once for all programs of a
// test run (exported_program.py).
#ifndef STANDARD_H
#define STANDARD_H
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>
#endif
