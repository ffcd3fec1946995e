# Looks into a linked runner: has it the SME microkernels that its preset promises, or none?
#
# cmake -DNM=nm -DBINARY=runner -DSME=ON|OFF [-DOUTPUT=check.cpp -DLIBRARIES=a.a|b.a] -P symbols.cmake
#
# OUTPUT becomes C++ that tells what was found, with a hash of each library, for --build-info.
cmake_minimum_required(VERSION 3.28)

execute_process(COMMAND "${NM}" --defined-only "${BINARY}"
  OUTPUT_VARIABLE _symbols RESULT_VARIABLE _failed ERROR_VARIABLE _reason)
if(_failed)
  message(FATAL_ERROR "${NM} cannot read ${BINARY}: ${_reason}")
endif()
# Stand-ins of a trace build are no microkernels.
string(REGEX REPLACE "_?__wrap_[A-Za-z0-9_]*" "" _symbols "${_symbols}")
string(REGEX MATCHALL "(xnn_[a-z0-9_]*neonsme2|kai_run_[a-z0-9_]*_sme2)[a-z0-9_]*" _sme2 "${_symbols}")
string(REGEX MATCHALL "(xnn_[a-z0-9_]*neonsme|kai_run_[a-z0-9_]*_sme)(_[a-z0-9_]*)?[^a-z0-9_]" _sme "${_symbols}")
string(REGEX MATCHALL "(xnn_[a-z0-9_]*neonsme|kai_[a-z0-9_]*_sme)[a-z0-9_]*" _any "${_symbols}")
list(LENGTH _sme2 _sme2_count)
list(LENGTH _sme _sme_count)

if(SME AND (_sme2_count EQUAL 0 OR _sme_count EQUAL 0))
  message(FATAL_ERROR "${BINARY} has ${_sme2_count} SME2 and ${_sme_count} SME microkernels, so it is no sme2 build: look for XNNPACK_ENABLE_ARM_SME2 and EXECUTORCH_XNNPACK_ENABLE_KLEIDI in CMakeCache.txt.")
elseif(NOT SME AND _any)
  list(GET _any 0 _example)
  message(FATAL_ERROR "${BINARY} has code for SME such as ${_example}, so it is no sme2-off build: delete the build folder and build again.")
endif()

if(OUTPUT)
  set(_hashes "")
  string(REPLACE "|" ";" LIBRARIES "${LIBRARIES}")
  foreach(_library IN LISTS LIBRARIES)
    file(SHA256 "${_library}" _hash)
    get_filename_component(_name "${_library}" NAME)
    string(APPEND _hashes "    json.field(\"${_name}\", \"${_hash}\");\n")
  endforeach()
  file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#include "build_info.h"

namespace etprof {

void write_symbol_check(JsonWriter& json) {
    json.begin_object();
    json.field("sme2_microkernels", @_sme2_count@);
    json.field("sme_microkernels", @_sme_count@);
    json.key("library_sha256");
    json.begin_object();
@_hashes@    json.end_object();
    json.end_object();
}

}  // namespace etprof
]])
endif()
