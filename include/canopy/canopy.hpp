// Everything canopy offers in C++.
#pragma once

#include "canopy/backend.hpp"
#include "canopy/commit.hpp"
#include "canopy/conv.hpp"
#include "canopy/plan.hpp"
#include "canopy/problem.hpp"
#include "canopy/reference.hpp"
#include "canopy/tree.hpp"
#include "canopy/verify.hpp"
