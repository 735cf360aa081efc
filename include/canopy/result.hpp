// Errors without exceptions: a status, a message, and a value-or-error.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "canopy/canopy.h"

namespace canopy {

// status CANOPY_OK means "no error". A message names the argument, what was expected, what came, and the remedy.
struct [[nodiscard]] Error {
  canopy_status status = CANOPY_OK;
  std::string message;

  bool ok() const { return status == CANOPY_OK; }
  static Error invalid(std::string message) { return {CANOPY_INVALID, std::move(message)}; }
  static Error unsupported(std::string message) { return {CANOPY_UNSUPPORTED, std::move(message)}; }
};

// Either a T or an Error that is not ok. Reading the value of a failed result is a programming error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return held_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() { return *std::get_if<0>(&held_); }
  const T& operator*() const { return *std::get_if<0>(&held_); }
  T* operator->() { return std::get_if<0>(&held_); }
  const T* operator->() const { return std::get_if<0>(&held_); }
  const Error& error() const { return *std::get_if<1>(&held_); }

 private:
  std::variant<T, Error> held_;
};

}  // namespace canopy
